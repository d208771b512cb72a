// Functions of text models: what finite differences do not show.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>

#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/pointwise/dropout.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "tests/support/graph_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr float kFloatNan = std::numeric_limits<float>::quiet_NaN();

// Of ones, `rows` rows of `columns` for each sample.
std::vector<float> Mask(std::vector<std::int64_t> samples, std::int64_t update,
                        const DropoutOptions& options, std::int64_t rows = 5,
                        std::int64_t columns = 13) {
  GraphBench bench;
  const Shape shape = {static_cast<std::int64_t>(samples.size()) * rows, columns};
  const ValueId x =
      bench.Input("x", shape, std::vector<float>(static_cast<std::size_t>(Elements(shape)), 1.0F));
  const ValueId ids = bench.Longs("sample_ids", std::move(samples));
  return bench.RunAndRead(
      bench.Apply(std::make_shared<Dropout>(options), {x, ids, bench.Longs("update", {update})}));
}

TEST(DropoutTest, MaskDependsOnSample) {
  const DropoutOptions options{.probability = 0.5F, .seed = 1, .layer = 2};
  const std::vector<float> three = Mask({40, 7, 23}, 9, options);
  const std::vector<float> one = Mask({7}, 9, options);
  const auto size = static_cast<std::ptrdiff_t>(one.size());
  EXPECT_EQ(one, std::vector<float>(three.begin() + size, three.begin() + 2 * size));
  EXPECT_NE(one, std::vector<float>(three.begin(), three.begin() + size));
  EXPECT_NE(one, Mask({7}, 10, options));
  EXPECT_NE(one, Mask({7}, 9, {.probability = 0.5F, .seed = 2, .layer = 2}));
  EXPECT_NE(one, Mask({7}, 9, {.probability = 0.5F, .seed = 1, .layer = 3}));
}

TEST(DropoutTest, MayDropWholeSample) {
  const DropoutOptions options{.probability = 0.5F, .seed = 1, .layer = 2, .whole_samples = true};
  std::vector<std::int64_t> samples(64);
  std::iota(samples.begin(), samples.end(), 100);
  const std::vector<float> all = Mask(samples, 9, options);
  int kept = 0;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto own = std::span(all).subspan(i * 65, 65);
    EXPECT_TRUE(own[0] == 0 || own[0] == 2) << own[0];
    EXPECT_EQ(std::ranges::count(own, own[0]), 65);
    kept += own[0] == 2 ? 1 : 0;
  }
  EXPECT_TRUE(kept > 16 && kept < 48) << kept;
  const std::vector<float> one = Mask({103}, 9, options);
  EXPECT_EQ(one, std::vector<float>(all.begin() + 3 * 65, all.begin() + 4 * 65));
}

TEST(DropoutTest, PartOfSampleHasMaskOfWhole) {
  // Heads, rows and columns of attention; places of odd and even rows.
  constexpr std::int64_t kHeads = 3;
  constexpr std::int64_t kWhole = 7;
  DropoutOptions options{.probability = 0.5F, .seed = 1, .layer = 2};
  const std::vector<float> whole = Mask({40, 7}, 9, options, kHeads * kWhole, kWhole);
  for (const std::int64_t size : {1, 2, 5, 7}) {
    options.cut = {{kHeads, kHeads}, {size, kWhole}, {size, kWhole}};
    const std::vector<float> part = Mask({40, 7}, 9, options, kHeads * size, size);
    std::vector<float> expected;
    for (std::int64_t row = 0; row < 2 * kHeads * kWhole; ++row) {
      if (row % kWhole >= size) continue;
      expected.insert(expected.end(), whole.begin() + row * kWhole,
                      whole.begin() + row * kWhole + size);
    }
    EXPECT_EQ(part, expected) << size;
  }
  // Other forms: [length, width], [length, heads, length], and more than the kernels know.
  options.cut = {{5, 7}, {21, 21}};
  const auto rows = static_cast<std::ptrdiff_t>(5 * 21);
  EXPECT_EQ(Mask({40}, 9, options, 5, 21), std::vector<float>(whole.begin(), whole.begin() + rows));
  options.cut = {{2, 7}, {3, 3}, {4, 7}};
  const std::vector<float> other = Mask({40}, 9, options, 6, 4);
  EXPECT_EQ(other[4 * 5 + 3], whole[21 + 7 * 2 + 3]) << "row 1, head 2, column 3";
  EXPECT_EQ(DropoutPlaces::Make({{2, 3}, {2, 3}, {2, 3}, {2, 3}, {2, 3}}, 32)->First(15), 120);
  const std::vector<CutDimension> many(6, {2, 3});
  EXPECT_THAT(
      DropoutPlaces::Make(many, 64).status(),
      IsError(ErrorKind::kConfig, "expected 64 elements in at most 5 parts, found 64 in 6"));
  EXPECT_THAT(DropoutPlaces::Make({{2, 3}}, 3).status(),
              IsError(ErrorKind::kConfig, "expected 3 elements in at most 5 parts, found 2"));
  EXPECT_FALSE(DropoutPlaces::Make({{4, 3}}, 4).ok()) << "larger than the whole";
}

TEST(DropoutTest, KeepsMean) {
  for (const float p : {0.0F, 0.1F, 0.5F, 0.9F}) {
    const std::vector<float> mask = Mask({1, 2}, 0, {.probability = p}, 100, 501);
    double sum = 0;
    double kept = 0;
    for (const float value : mask) {
      EXPECT_TRUE(value == 0 || value == 1 / (1 - p)) << value;
      sum += static_cast<double>(value);
      kept += value != 0 ? 1 : 0;
    }
    const auto count = static_cast<double>(mask.size());
    EXPECT_NEAR(kept / count, 1 - static_cast<double>(p), 5e-3);
    EXPECT_NEAR(sum / count, 1, 0.05);
  }
}

TEST(DropoutTest, UniformFactors) {
  const DropoutOptions options{.probability = 0.5F, .seed = 1, .layer = 2, .uniform = true};
  const std::vector<float> mask = Mask({1, 2}, 0, options, 100, 501);
  double sum = 0;
  double squares = 0;
  std::array<int, 10> tenths = {};
  for (const float value : mask) {
    ASSERT_TRUE(value > 0.5F && value < 1.5F) << value;
    sum += static_cast<double>(value);
    squares += std::pow(static_cast<double>(value) - 1, 2);
    ++tenths[static_cast<std::size_t>((value - 0.5F) * 10)];
  }
  const auto count = static_cast<double>(mask.size());
  const double deviation = 1 / std::sqrt(12);
  EXPECT_NEAR(sum / count, 1, 4 * deviation / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1.0 / 12, 4 * 0.0745 / std::sqrt(count));
  for (const int found : tenths) EXPECT_NEAR(found, count / 10, 4 * std::sqrt(0.09 * count));
  // The same values by sample, in a part of it, and for the largest spread.
  const std::vector<float> second = Mask({2}, 0, options, 100, 501);
  EXPECT_EQ(second, std::vector<float>(mask.begin() + 50'100, mask.end()));
  DropoutOptions part = options;
  part.cut = {{7, 100}, {3, 501}};
  EXPECT_EQ(Mask({2}, 0, part, 7, 3)[5 * 3 + 2], second[5 * 501 + 2]);
  part = {.probability = 1, .seed = 1, .layer = 2, .uniform = true};
  EXPECT_FLOAT_EQ(Mask({2}, 0, part, 1, 2)[1], 2 * (second[1] - 0.5F));
}

TEST(DropoutTest, WholeSamplesAreDroppedOrKept) {
  constexpr std::int64_t kSamples = 2000;
  const DropoutOptions options{.probability = 0.3F, .seed = 4, .layer = 1, .whole_samples = true};
  std::vector<std::int64_t> samples(kSamples);
  std::iota(samples.begin(), samples.end(), 0);
  const std::vector<float> mask = Mask(samples, 6, options, 3, 5);
  double kept = 0;
  for (std::size_t b = 0; b < kSamples; ++b) {
    const float value = mask[15 * b];
    EXPECT_TRUE(value == 0 || value == static_cast<float>(1 / (1 - double{0.3F}))) << value;
    EXPECT_EQ(std::count(mask.begin() + 15 * b, mask.begin() + 15 * (b + 1), value), 15);
    kept += value != 0 ? 1 : 0;
  }
  EXPECT_NEAR(kept / kSamples, 0.7, 4 * std::sqrt(0.21 / kSamples));
  EXPECT_EQ(Mask({7}, 6, options, 1, 1)[0], mask[15 * 7]);
  EXPECT_NE(Mask(samples, 7, options, 3, 5), mask);
}

TEST(EmbeddingTest, IdOutOfRangeGivesNanAndNoGradient) {
  GraphBench bench;
  const ValueId ids = bench.Ids("ids", {4}, std::vector<std::int32_t>{2, -1, 3, 0});
  const ValueId table = bench.Parameter("table", {3, 2});
  const std::vector<float> y =
      bench.RunAndRead(bench.Apply(std::make_shared<Embedding>(), {ids, table}));
  for (std::size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 2 == 1 || i / 2 == 2);

  GraphBench backward;
  const ValueId dy = backward.Input("dy", {4, 2});
  const std::vector<float> dtable = backward.RunAndRead(backward.Apply(
      std::make_shared<EmbeddingGradient>(3), {dy, backward.Ids("ids", {4}, {2, -1, 3, 0})}));
  const std::span<const float> g = backward.input(dy);
  EXPECT_EQ(dtable, (std::vector<float>{g[6], g[7], 0, 0, g[0], g[1]}));
}

struct TokenLosses {
  double loss, weight;
};

TokenLosses ComputeLoss(const std::vector<std::int32_t>& labels, std::vector<float> weights = {}) {
  GraphBench bench;
  const auto rows = static_cast<std::int64_t>(labels.size());
  std::vector<ValueId> inputs = {bench.Input("z", {rows, 5}), bench.Ids("labels", {rows}, labels)};
  if (!weights.empty()) inputs.push_back(bench.Input("weights", {rows}, std::move(weights)));
  const std::vector<ValueId> outputs =
      bench.ApplyAll(std::make_shared<TokenCrossEntropy>(), std::move(inputs));
  for (const std::size_t i : {0, 1}) bench.graph().MarkOutput(outputs[i]);
  bench.Prepare({});
  bench.Run();
  return {*bench.executor().Output<double>(outputs[0]),
          *bench.executor().Output<double>(outputs[1])};
}

TEST(EmbeddingTest, PaddingRowHasNoGradient) {
  GraphBench bench;
  const ValueId ids = bench.Ids("ids", {4}, {1, 2, 1, 0});
  const ValueId y = bench.Apply(std::make_shared<Embedding>(DType::kF32, 1),
                                {ids, bench.Parameter("table", {3, 2})});
  bench.PrepareTraining(
      bench.Apply(std::make_shared<MeanSquaredError>(), {y, bench.Input("targets", {4, 2})}));
  bench.Run();
  const auto gradient = bench.gradient("table");
  for (std::size_t i = 0; i < gradient.size(); ++i) EXPECT_EQ(gradient[i] == 0, i / 2 == 1) << i;
}

TEST(NumberFunctionTest, Limits) {
  const auto of = [](NumberKind kind, double a, double b, bool gradient) {
    GraphBench bench;
    const ValueId x = bench.Input("x", {4}, {-4, -3, 0, 3});
    const ValueId dy = bench.Input("dy", {4}, {6, 6, 6, 6});
    return bench.RunAndRead(gradient
                                ? bench.Apply(std::make_shared<NumberFunctionGradient>(
                                                  kind, NumberFunction(kind, a, b).numbers()),
                                              {dy, x})
                                : bench.Apply(std::make_shared<NumberFunction>(kind, a, b), {x}));
  };
  EXPECT_EQ(of(NumberKind::kClamp, -3, 0, false), (std::vector<float>{-3, -3, 0, 0}));
  EXPECT_EQ(of(NumberKind::kClamp, -3, 0, true), (std::vector<float>{0, 6, 6, 0}));
  EXPECT_EQ(of(NumberKind::kHardtanh, -3, 0, true), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(of(NumberKind::kHardsigmoid, 0, 0, false), (std::vector<float>{0, 0, 0.5, 1}));
  EXPECT_EQ(of(NumberKind::kHardsigmoid, 0, 0, true), (std::vector<float>{0, 0, 1, 0}));
  EXPECT_EQ(of(NumberKind::kEqual, -3, 0, false), (std::vector<float>{0, 1, 0, 0}));
  EXPECT_EQ(of(NumberKind::kFloor, 0, 0, false), (std::vector<float>{-4, -3, 0, 3}));
  EXPECT_EQ(of(NumberKind::kFloor, 0, 0, true), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(of(NumberKind::kLess, 0, 0, false), (std::vector<float>{1, 1, 0, 0}));
  EXPECT_EQ(of(NumberKind::kLess, 0, 0, true), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(of(NumberKind::kRoot, 0, 0, true)[2], 0);
  EXPECT_FLOAT_EQ(of(NumberKind::kRoot, 0, 0, true)[3], std::sqrt(3.0F));  // 6 / (2 sqrt(3))
  for (const NumberKind kind : {NumberKind::kClamp, NumberKind::kHardsigmoid}) {
    GraphBench bench;
    const ValueId x = bench.Input("x", {1}, {kFloatNan});
    EXPECT_TRUE(std::isnan(
        bench.RunAndRead(bench.Apply(std::make_shared<NumberFunction>(kind, -1, 1), {x}))[0]));
  }
}

TEST(CombineTest, UnselectedValuesHaveNoEffect) {
  GraphBench bench;
  const ValueId a = bench.Parameter("a", {1, 3});
  std::ranges::copy(std::array{kFloatNan, 2.0F, std::numeric_limits<float>::infinity()},
                    bench.parameter("a").begin());
  const ValueId mask = bench.Parameter("mask", {2, 3});
  std::ranges::copy(std::array{0.0F, 1.0F, 0.0F, 0.0F, -2.0F, 0.0F},
                    bench.parameter("mask").begin());
  const ValueId y = bench.Apply(std::make_shared<Combine>(CombineKind::kSelect), {a, mask});
  const ValueId targets = bench.Input("targets", {2, 3}, {0, 0, 0, 0, 0, 0});
  bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {y, targets}));
  bench.Run();
  const auto dy = 2 * GraphBench::kWeight / 3 * 2;
  EXPECT_THAT(bench.gradient("a"), testing::ElementsAre(0, testing::FloatEq(2 * dy), 0));
  EXPECT_THAT(bench.gradient("mask"), testing::Each(0));
}

TEST(TokenCrossEntropyTest, CountsLabelsThatAreNotIgnored) {
  EXPECT_EQ(ComputeLoss({1, -100, 2, -100}).weight, 2);
  EXPECT_EQ(ComputeLoss({1, -100, 2, -100}, {0.5F, 7, 2, 7}).weight, 2.5);
  EXPECT_EQ(ComputeLoss({-100, -100}).weight, 0);
  EXPECT_EQ(ComputeLoss({-100, -100}).loss, 0);
  EXPECT_TRUE(std::isnan(ComputeLoss({1, 5}).loss));
  EXPECT_TRUE(std::isnan(ComputeLoss({1, -1}).loss));
}

TEST(PoolRowsTest, MeanIsOverLength) {
  GraphBench bench;
  const ValueId x = bench.Input("x", {6, 2}, {1, 10, 2, 20, 4, 40, 5, 50, 7, 70, 9, 90});
  const ValueId lengths = bench.Ids("lengths", {2}, {2, 0});
  const std::vector<float> y =
      bench.RunAndRead(bench.Apply(std::make_shared<PoolRows>(PoolKind::kMean, 3), {x, lengths}));
  EXPECT_EQ(y, (std::vector<float>{1.5, 15, 0, 0}));
}

TEST(SequenceFunctionsTest, PropagatesNan) {
  const std::shared_ptr<const Function> functions[] = {
      std::make_shared<Activation>(ActivationKind::kGelu),
      std::make_shared<Activation>(ActivationKind::kGeluTanh),
      std::make_shared<Activation>(ActivationKind::kTanh),
      std::make_shared<Activation>(ActivationKind::kSilu),
      std::make_shared<Softmax>(),
      std::make_shared<L2Normalize>(),
      std::make_shared<PoolRows>(PoolKind::kMean, 2),
  };
  for (const auto& function : functions) {
    for (const float sign : {1.0F, -1.0F}) {
      GraphBench bench;
      std::vector<float> values(40, 0.5F);
      values[3] = std::copysign(kFloatNan, sign);
      const std::vector<float> y =
          bench.RunAndRead(bench.Apply(function, {bench.Input("x", {2, 20}, std::move(values))}));
      EXPECT_TRUE(std::isnan(y[3])) << function->name();
      EXPECT_FALSE(std::isnan(y.back())) << function->name();
    }
  }
}

// Rows of one value, of large values, and of values far from 0.
TEST(LayerNormTest, DifficultRows) {
  GraphBench bench;
  std::vector<float> x(3 * 64, 3.0F);
  for (std::size_t i = 0; i < 64; ++i) {
    x[64 + i] = i % 2 == 0 ? 1e15F : -1e15F;
    x[128 + i] = 1000.0F + static_cast<float>(i % 2);
  }
  const ValueId input = bench.Input("x", {3, 64}, std::move(x));
  const ValueId gamma = bench.Input("gamma", {64}, std::vector<float>(64, 2.0F));
  const ValueId beta = bench.Input("beta", {64}, std::vector<float>(64, 0.5F));
  const std::vector<float> y =
      bench.RunAndRead(bench.Apply(std::make_shared<LayerNorm>(), {input, gamma, beta}));
  for (std::size_t i = 0; i < 64; ++i) {
    EXPECT_EQ(y[i], 0.5F);
    EXPECT_FLOAT_EQ(y[64 + i], i % 2 == 0 ? 2.5F : -1.5F);
    EXPECT_NEAR(y[128 + i], i % 2 == 0 ? -1.5 : 2.5, 1e-4);
  }
}

}  // namespace
}  // namespace gaccd
