// Batch norms of one micro-batch: values against the formulas, gradients against differences. Whole
// updates of several ranks: tests/golden/train/batch_norm.txtpb.
#include "daemon/ops/norm/batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "daemon/autograd/add.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/pointwise/activations.h"
#include "tests/support/graph_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr float kEps = 1e-3F;

class BatchNormTest : public testing::TestWithParam<Shape> {
 protected:
  // The mean squared distance of the normalised x from fixed targets.
  void Record(NormGroup group) {
    const Shape& shape = GetParam();
    const Shape channels = {shape.back()};
    const ValueId x = bench_.Parameter("x", shape);
    std::vector<ValueId> position;
    if (group == NormGroup::kRuns) {
      runs_ = {.size = 3, .count = 4, .samples = shape[0]};
      position = {bench_.Longs("position", {kPosition})};
    }
    const auto with_position = [&](std::vector<ValueId> inputs) {
      inputs.insert(inputs.end(), position.begin(), position.end());
      return inputs;
    };
    ValueId sums = bench_.Apply(std::make_shared<ChannelSums>(runs_), with_position({x}));
    if (group == NormGroup::kUpdate || group == NormGroup::kRuns)
      sums = bench_.Apply(std::make_shared<UpdateSum>(), {sums});
    if (group == NormGroup::kNone) {
      sums = bench_.Apply(
          std::make_shared<FixedSums>(),
          {bench_.Input("mean", channels),
           bench_.Input("variance", channels,
                        std::vector<float>(static_cast<std::size_t>(shape.back()), 2))});
    }
    y_ = bench_.Apply(std::make_shared<BatchNorm>(kEps, group, runs_),
                      with_position({x, sums, bench_.Parameter("gamma", channels),
                                     bench_.Parameter("beta", channels)}));
    bench_.graph().MarkOutput(y_);
    const ValueId rows = bench_.Rows(y_);
    const ValueId targets = bench_.Input("targets", bench_.graph().value(rows).spec.shape);
    targets_ = bench_.input(targets);
    bench_.PrepareTraining(bench_.Apply(std::make_shared<MeanSquaredError>(), {rows, targets}));
  }
  [[nodiscard]] std::size_t channels() const { return static_cast<std::size_t>(GetParam().back()); }
  void ExpectDifferences() {
    bench_.Run();
    const std::vector<float> analytic(bench_.gradients().begin(), bench_.gradients().end());
    constexpr float kStep = 1.0F / 128;
    for (std::size_t i = 0; i < bench_.parameters().size(); ++i) {
      const float value = bench_.parameters()[i];
      const auto at = [&](float moved) {
        bench_.parameters()[i] = moved;
        bench_.Run();
        return bench_.objective() * GraphBench::kWeight;
      };
      const double rise = at(value + kStep) - at(value - kStep);
      bench_.parameters()[i] = value;
      EXPECT_NEAR(analytic[i], rise / (2 * kStep), 2e-4) << i;
    }
  }
  static constexpr std::int64_t kPosition = 5;  // the first sample is the last one of its run
  GraphBench bench_;
  NormRuns runs_;
  ValueId y_ = 0;
  std::span<const float> targets_;
};

TEST_P(BatchNormTest, NormalisesByChannelStatistics) {
  Record(NormGroup::kUpdate);
  for (float& value : bench_.parameter("x")) value += 1e4F;  // many deviations from 0
  bench_.Run();
  const std::span<const float> x = bench_.parameter("x");
  std::vector<double> mean(channels()), variance(channels());
  const double n = static_cast<double>(x.size() / channels());
  for (std::size_t i = 0; i < x.size(); ++i) mean[i % channels()] += double{x[i]} / n;
  for (std::size_t i = 0; i < x.size(); ++i) {
    variance[i % channels()] += std::pow(double{x[i]} - mean[i % channels()], 2) / n;
  }
  const auto* y = bench_.executor().Output<float>(y_);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::size_t c = i % channels();
    const double h = (double{x[i]} - mean[c]) / std::sqrt(variance[c] + double{kEps});
    EXPECT_NEAR(y[i], h * bench_.parameter("gamma")[c] + bench_.parameter("beta")[c], 2e-6) << i;
  }
}

// The mean, rounded to f32, is off by a part of the deviations that the gradients notice.
TEST_P(BatchNormTest, GradientsWithLargeMeanEqualFormula) {
  Record(NormGroup::kUpdate);
  for (float& value : bench_.parameter("x")) value += 1e4F;
  bench_.Run();
  const std::span<const float> x = bench_.parameter("x");
  const auto* y = bench_.executor().Output<float>(y_);
  const double n = static_cast<double>(x.size() / channels());
  const auto samples = static_cast<double>(GetParam()[0]);
  const double factor = 2 * double{GraphBench::kWeight} * samples / static_cast<double>(x.size());
  for (std::size_t c = 0; c < channels(); ++c) {
    double mean = 0, variance = 0, sum = 0, product = 0;
    const auto dy = [&](std::size_t i) { return factor * (double{y[i]} - targets_[i]); };
    for (std::size_t i = c; i < x.size(); i += channels()) mean += x[i] / n;
    for (std::size_t i = c; i < x.size(); i += channels()) variance += std::pow(x[i] - mean, 2) / n;
    const double rstd = 1 / std::sqrt(variance + double{kEps});
    for (std::size_t i = c; i < x.size(); i += channels()) {
      sum += dy(i);
      product += dy(i) * (x[i] - mean) * rstd;
    }
    for (std::size_t i = c; i < x.size(); i += channels()) {
      const double h = (x[i] - mean) * rstd;
      const double dx = bench_.parameter("gamma")[c] * rstd * (dy(i) - sum / n - h * product / n);
      EXPECT_NEAR(bench_.gradient("x")[i], dx, 2e-6) << i;
    }
  }
}

TEST_P(BatchNormTest, GradientsThroughStatisticsEqualFiniteDifferences) {
  Record(NormGroup::kUpdate);
  ExpectDifferences();
}

TEST_P(BatchNormTest, GradientsWithFixedStatisticsEqualFiniteDifferences) {
  Record(NormGroup::kNone);
  ExpectDifferences();
}

TEST_P(BatchNormTest, GradientsThroughRunStatisticsEqualFiniteDifferences) {
  Record(NormGroup::kRuns);
  ExpectDifferences();
}

// Each part of a run as if it were all samples.
TEST_P(BatchNormTest, NormalisesEachRunSeparately) {
  Record(NormGroup::kRuns);
  bench_.Run();
  const std::span<const float> x = bench_.parameter("x");
  const auto* y = bench_.executor().Output<float>(y_);
  const auto samples = static_cast<std::size_t>(GetParam()[0]);
  const std::size_t width = x.size() / samples;
  for (std::size_t first = 0; first < samples;) {
    const std::size_t end = std::min(samples, first == 0 ? 1 : first + 3);
    for (std::size_t i = first * width; i < end * width; ++i) {
      const std::size_t c = i % channels();
      const auto n = static_cast<double>((end - first) * width / channels());
      double mean = 0, squares = 0;
      for (std::size_t j = first * width + c; j < end * width; j += channels()) mean += x[j] / n;
      for (std::size_t j = first * width + c; j < end * width; j += channels()) {
        squares += std::pow(x[j] - mean, 2) / n;
      }
      const double h = (x[i] - mean) / std::sqrt(squares + double{kEps});
      EXPECT_NEAR(y[i], h * bench_.parameter("gamma")[c] + bench_.parameter("beta")[c], 2e-6) << i;
    }
    first = end;
  }
}

// Here the update has one micro-batch; a graph of such norms alone has no segments.
TEST_P(BatchNormTest, SeparateMicroBatchEqualsUpdateOfOneMicroBatch) {
  Record(NormGroup::kMicroBatch);
  EXPECT_EQ(bench_.executor().update_sums(), 0U);
  ExpectDifferences();
}

TEST_P(BatchNormTest, LaterMicroStepAddsToGradients) {
  Record(NormGroup::kUpdate);
  bench_.Run();
  const float gamma = bench_.gradient("gamma")[0], beta = bench_.gradient("beta")[0];
  bench_.Run(false);
  EXPECT_FLOAT_EQ(bench_.gradient("gamma")[0], 2 * gamma);
  EXPECT_FLOAT_EQ(bench_.gradient("beta")[0], 2 * beta);
}

INSTANTIATE_TEST_SUITE_P(Shapes, BatchNormTest,
                         testing::Values(Shape{5, 3}, Shape{4, 17}, Shape{2, 3, 11},
                                         Shape{3, 2, 3, 5}));

// Two residual blocks between convolutions: relu(norm(conv(h)) + h), h = relu(norm(conv(x))).
class FusedBatchNormTest : public testing::TestWithParam<bool> {
 protected:
  static ValueId Convolve(GraphBench& bench, ValueId x, const std::string& name) {
    const std::int64_t in = bench.graph().value(x).spec.shape.back();
    return bench.Apply(std::make_shared<Conv2d>(Conv2dOptions{.padding = {1, 1}}),
                       {x, bench.Parameter(name, {kChannels, in, 3, 3}, 0.5)});
  }
  static ValueId Normalize(GraphBench& bench, ValueId x, const std::string& name) {
    const ValueId sums = bench.Apply(std::make_shared<ChannelSums>(), {x});
    return bench.Apply(std::make_shared<BatchNorm>(kEps, NormGroup::kMicroBatch),
                       {x, sums, bench.Parameter(name + ".gamma", {kChannels}),
                        bench.Parameter(name + ".beta", {kChannels})});
  }
  static ValueId AddBlock(GraphBench& bench, ValueId h, const std::string& number) {
    const ValueId y = Normalize(bench, Convolve(bench, h, "conv" + number), "norm" + number);
    return bench.Apply(std::make_shared<Relu>(), {bench.Apply(std::make_shared<Add>(), {y, h})});
  }
  static void Record(GraphBench& bench, bool fuse, bool bf16) {
    const ValueId x = bench.Parameter("x", {3, 5, 4, kChannels});
    const ValueId h = bench.Apply(std::make_shared<Relu>(),
                                  {Normalize(bench, Convolve(bench, x, "conv1"), "norm1")});
    bench.parameter("norm1.gamma")[0] = 0;  // a channel whose results are all 0
    bench.parameter("norm1.beta")[0] = 0;
    const ValueId y = Convolve(bench, AddBlock(bench, AddBlock(bench, h, "2"), "3"), "conv4");
    const ValueId rows = bench.Rows(y);
    const ValueId targets = bench.Input("targets", bench.graph().value(rows).spec.shape);
    bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {rows, targets}),
                          {.fuse = fuse, .bf16 = bf16});
  }
  static std::ptrdiff_t Count(GraphBench& bench, std::string_view name) {
    return std::ranges::count_if(
        bench.graph().nodes(), [name](const Node& node) { return node.function->name() == name; });
  }
  static constexpr std::int64_t kChannels = 18;
};

TEST_P(FusedBatchNormTest, IsBitIdenticalToSeparateFunctions) {
  if (GetParam() && DetectCpuBf16() == CpuBf16::kNone) {
    GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  }
  GraphBench alone;
  Record(alone, false, GetParam());
  GraphBench fused;
  Record(fused, true, GetParam());
  EXPECT_EQ(Count(fused, "relu") + Count(fused, "batch_norm"), 3);
  EXPECT_EQ(Count(alone, "relu_gradient"), 3);
  EXPECT_EQ(Count(fused, "relu_gradient"), 2) << "residuals need their results";
  EXPECT_EQ(Count(alone, "add"), 4);
  EXPECT_EQ(Count(fused, "add"), 1) << "of the gradient that goes into a batch norm";
  EXPECT_LE(Count(fused, "cast"), Count(alone, "cast") - (GetParam() ? 1 : 0));
  for (const bool first : {true, false}) {
    alone.Run(first);
    fused.Run(first);
    EXPECT_EQ(fused.objective(), alone.objective());
    EXPECT_TRUE(std::ranges::equal(fused.gradients(), alone.gradients()));
  }
}

INSTANTIATE_TEST_SUITE_P(Precisions, FusedBatchNormTest, testing::Bool(),
                         [](const auto& bf16) { return std::string(bf16.param ? "bf16" : "f32"); });

// Nobody may read what is no longer there: y is read by another function, or twice by the sum.
TEST(FuseBatchNormsTest, KeepsResultWithAnotherReader) {
  for (const bool twice : {false, true}) {
    GraphBench bench;
    const ValueId x = bench.Parameter("x", {4, 3});
    const ValueId sums = bench.Apply(std::make_shared<ChannelSums>(), {x});
    const ValueId y =
        bench.Apply(std::make_shared<BatchNorm>(kEps, NormGroup::kMicroBatch),
                    {x, sums, bench.Parameter("gamma", {3}), bench.Parameter("beta", {3})});
    const auto add = std::make_shared<Add>();
    const auto relu = std::make_shared<Relu>();
    const ValueId result = twice ? bench.Apply(relu, {bench.Apply(add, {y, y})})
                                 : bench.Apply(add, {y, bench.Apply(relu, {y})});
    const ValueId targets = bench.Input("targets", {4, 3});
    bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {result, targets}),
                          {.fuse = true});
    bench.Run();
    for (const Node& node : bench.graph().nodes()) {
      if (const auto* norm = dynamic_cast<const BatchNorm*>(node.function.get())) {
        EXPECT_FALSE(norm->end().relu) << "twice: " << twice;
      }
    }
  }
}

TEST(UpdateSumTest, RunsGraphWithUpdateSumsInSegments) {
  GraphBench bench;
  const ValueId x = bench.Parameter("x", {4, 2});
  const ValueId sums = bench.Apply(std::make_shared<UpdateSum>(),
                                   {bench.Apply(std::make_shared<ChannelSums>(), {x})});
  bench.graph().MarkOutput(sums);
  bench.Prepare({});
  EXPECT_EQ(bench.executor().update_sums(), 1U);
  EXPECT_EQ(bench.executor().collectives(), 0U);
  EXPECT_EQ(bench.executor().FindUpdateSum(sums), 0U);
  EXPECT_THAT(bench.executor().Run(true), IsError(ErrorKind::kInternal, "segment by segment"));
}

TEST(RunningStatisticsTest, AddOncePerUpdateWithUnbiasedVariance) {
  // Two channels, n = 4: x = 1 1 3 3 and 2 2 2 2.
  const std::vector<double> sums = {8, 8, 20, 16, 4};
  std::vector<float> mean = {0, 1}, variance = {1, 1};
  float updates = 6;
  AddToRunning(NormGroup::kUpdate, sums, 0.25, {mean.data(), variance.data(), &updates});
  EXPECT_THAT(mean, testing::ElementsAre(0.5F, 1.25F));
  EXPECT_THAT(variance, testing::ElementsAre(testing::FloatEq(0.75F + 0.25F * 4 / 3), 0.75F));
  EXPECT_EQ(updates, 7);
}

// Two channels, micro-batches of two values: 1 3 and 2 2, then 5 9 and 0 6.
TEST(MicroStatisticsTest, AccumulateOverMicroBatches) {
  GraphBench bench;
  const ValueId x = bench.Parameter("x", {2, 2});
  const ValueId sums = bench.Apply(std::make_shared<ChannelSums>(), {x});
  ASSERT_OK(bench.graph()
                .ApplyToGradients(std::make_shared<MicroStatistics>(), {sums},
                                  {bench.Parameter("mean", {2}), bench.Parameter("variance", {2}),
                                   bench.Parameter("n", {})})
                .status());
  bench.Prepare({});
  const auto run = [&](const std::vector<float>& values, bool first) {
    std::ranges::copy(values, bench.parameter("x").begin());
    bench.Run(first);
  };
  run({1, 2, 3, 2}, true);
  EXPECT_THAT(bench.gradient("mean"), testing::ElementsAre(4, 4));
  EXPECT_THAT(bench.gradient("variance"), testing::ElementsAre(2 * 2, 0)) << "n - 1 = 1";
  run({5, 0, 9, 6}, false);
  EXPECT_THAT(bench.gradient("mean"), testing::ElementsAre(18, 10));
  EXPECT_THAT(bench.gradient("variance"), testing::ElementsAre(4 + 2 * 8, 2 * 18));
  EXPECT_THAT(bench.gradient("n"), testing::ElementsAre(4));
  run({1, 2, 3, 2}, true);
  EXPECT_THAT(bench.gradient("n"), testing::ElementsAre(2)) << "another update";
}

TEST(RunningStatisticsTest, AverageOverMicroBatches) {
  const std::vector<double> sums = {18, 10, 20, 36, 4};  // as above
  std::vector<float> mean = {0, 1}, variance = {1, 1};
  float updates = 6;
  AddToRunning(NormGroup::kMicroBatch, sums, 0.25, {mean.data(), variance.data(), &updates});
  EXPECT_THAT(mean, testing::ElementsAre(4.5F / 4, 0.75F + 2.5F / 4));
  EXPECT_THAT(variance, testing::ElementsAre(0.75F + 5.0F / 4, 0.75F + 9.0F / 4));
  EXPECT_EQ(updates, 7);
}

TEST(RunningStatisticsTest, AverageOverRuns) {
  // n = 2: 1 3 and 2 2; n = 3: 0 3 6 and 1 1 1; and none.
  const std::vector<double> runs = {4, 4, 10, 8, 2, 9, 3, 45, 3, 3, 0, 0, 0, 0, 0};
  std::vector<double> total(5, -1.0);
  AddRuns(runs, total);
  EXPECT_THAT(total, testing::ElementsAre(13, 7, 2 * 2 + 3 * 9, 0, 5));
}

TEST(RunsTest, SamplesBeyondLastRunAreAnError) {
  GraphBench bench;
  const NormRuns runs{.size = 3, .count = 2, .samples = 4};
  bench.graph().MarkOutput(
      bench.Apply(std::make_shared<ChannelSums>(runs),
                  {bench.Parameter("x", {4, 2}), bench.Longs("position", {3})}));
  bench.Prepare({});
  EXPECT_THAT(bench.executor().Run(true),
              IsError(ErrorKind::kInternal, "4 samples within 2 runs of 3", "position 3"));
}

// Inputs about 1e20 have a variance that float32 does not hold, while loss and gradients are
// finite.
TEST(RunningStatisticsTest, DetectFloat32Overflow) {
  std::vector<float> mean = {0}, variance = {1};
  float updates = 0;
  const RunningStatistics running{mean.data(), variance.data(), &updates};
  EXPECT_TRUE(StaysFinite(NormGroup::kUpdate, std::vector<double>{2e18, 2e36, 2}, 0.5, running));
  EXPECT_FALSE(StaysFinite(NormGroup::kUpdate, std::vector<double>{0, 2e40, 2}, 0.5, running));
  EXPECT_FALSE(StaysFinite(NormGroup::kUpdate, std::vector<double>{NAN, 1, 2}, 0.5, running));
  EXPECT_EQ(variance[0], 1) << "nothing is changed";
}

}  // namespace
}  // namespace gaccd
