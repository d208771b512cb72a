#include "daemon/autograd/executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "daemon/autograd/add.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/passes.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/product/linear.h"
#include "tests/support/graph_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

// distance(W x, t) with one weight; both of its gradient's kernels accumulate themselves.
ValueId RecordOneLayer(GraphBench& bench) {
  const ValueId x = bench.Input("x", {5, 3});
  const ValueId y = bench.Apply(std::make_shared<Linear>(),
                                {x, bench.Parameter("w", {4, 3}), bench.Parameter("b", {4})});
  const ValueId t = bench.Input("t", {5, 4});
  return bench.Apply(std::make_shared<MeanSquaredError>(), {y, t});
}

std::vector<float> Copy(std::span<float> values) { return {values.begin(), values.end()}; }

TEST(ExecutorTest, FirstMicroStepOverwritesLaterOnesAdd) {
  GraphBench bench;
  bench.PrepareTraining(RecordOneLayer(bench));
  for (const char* name : {"w", "b"}) {
    std::fill(bench.gradient(name).begin(), bench.gradient(name).end(), kNaN);
  }
  bench.Run(true);
  const std::vector<float> once = Copy(bench.gradients());
  for (const float g : once) ASSERT_FALSE(g != g);                       // no NaN left
  EXPECT_GT(RelativeError(std::vector<float>(once.size()), once), 0.5);  // and not all zero
  bench.Run(false);
  std::vector<float> twice = once;
  for (float& g : twice) g *= 2;
  EXPECT_LT(RelativeError(bench.gradients(), twice), 1e-6);
  bench.Run(true);
  EXPECT_EQ(RelativeError(bench.gradients(), once), 0);
}

// z = y + y with y = W x + b recorded twice, against the target 2 t: z - 2 t is twice y - t, and W
// is there twice, so its gradient is 4 times the one of y against t.
TEST(ExecutorTest, ParameterUsedTwiceGetsBothGradients) {
  GraphBench once;
  once.PrepareTraining(RecordOneLayer(once));
  once.Run();

  GraphBench twice;
  const ValueId x = twice.Input("x", {5, 3});
  const ValueId w = twice.Parameter("w", {4, 3});
  const ValueId b = twice.Parameter("b", {4});
  const ValueId y1 = twice.Apply(std::make_shared<Linear>(), {x, w, b});
  const ValueId y2 = twice.Apply(std::make_shared<Linear>(), {x, w, b});
  const ValueId t = twice.Input("t", {5, 4});
  const ValueId z = twice.Apply(std::make_shared<Add>(), {y1, y2});
  const ValueId target = twice.Apply(std::make_shared<Add>(), {t, t});
  twice.PrepareTraining(twice.Apply(std::make_shared<MeanSquaredError>(), {z, target}));
  std::fill(twice.gradients().begin(), twice.gradients().end(), 1e9F);
  twice.Run(true);
  for (const char* name : {"w", "b"}) {
    std::vector<float> expected = Copy(once.gradient(name));
    for (float& g : expected) g *= 4;
    EXPECT_LT(RelativeError(twice.gradient(name), expected), 1e-6) << name;
  }
}

// z = y + relu(y) without the second gradient: that of z against a target that is a constant, as
// if relu(y) were one. The view is read after y, which relu may not overwrite.
TEST(ExecutorTest, DetachedValueHasNoGradient) {
  const auto gradient = [](bool detached) {
    GraphBench bench;
    const ValueId x = bench.Input("x", {5, 3});
    const ValueId w = bench.Parameter("w", {4, 3});
    const ValueId y = bench.Apply(std::make_shared<Linear>(), {x, w});
    const ValueId same = bench.Input("w0", {4, 3}, Copy(bench.parameter("w")));
    const ValueId constant = detached ? bench.Apply(std::make_shared<Detach>(), {y})
                                      : bench.Apply(std::make_shared<Linear>(), {x, same});
    const ValueId relu = bench.Apply(std::make_shared<Relu>(), {constant});
    const ValueId z = bench.Apply(std::make_shared<Add>(), {y, relu});
    bench.PrepareTraining(
        bench.Apply(std::make_shared<MeanSquaredError>(), {z, bench.Input("t", {5, 4})}));
    bench.Run();
    return Copy(bench.gradient("w"));
  };
  EXPECT_EQ(gradient(true), gradient(false));
}

// The gradient that is reported ready has its final value, also one that two nodes add to.
TEST(ExecutorTest, ReportsEachGradientOnceWhenComplete) {
  GraphBench bench;
  const ValueId x = bench.Input("x", {5, 3});
  const ValueId w = bench.Parameter("w", {3, 3});
  const ValueId b = bench.Parameter("b", {3});
  const ValueId last = bench.Parameter("last", {2, 3});
  const ValueId once = bench.Apply(std::make_shared<Linear>(), {x, w, b});
  const ValueId twice = bench.Apply(std::make_shared<Linear>(), {once, w, b});
  const ValueId y =
      bench.Apply(std::make_shared<Linear>(), {twice, last, bench.Parameter("last_bias", {2})});
  const ValueId t = bench.Input("t", {5, 2});
  bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {y, t}));
  bench.Run();
  const std::vector<float> expected = Copy(bench.gradients());

  std::vector<std::string> order;
  const auto ready = [&](std::size_t parameter) -> Status {
    const FlatEntry& entry = bench.layout().entries()[parameter];
    order.push_back(entry.name);
    const auto first = expected.begin() + entry.offset;
    const std::vector<float> final_values(first, first + entry.elements);
    EXPECT_EQ(RelativeError(bench.gradient(entry.name), final_values), 0) << entry.name;
    return Status::Ok();
  };
  ASSERT_TRUE(bench.executor().Run(true, ready).ok());
  ASSERT_EQ(order.size(), 4U);
  EXPECT_TRUE(order[0].starts_with("last") && order[1].starts_with("last")) << order[0] << order[1];
  EXPECT_NE(order[2], order[3]);

  const Status stopped = bench.executor().Run(
      true, [](std::size_t) { return Status(ErrorKind::kUnavailable, "peer lost"); });
  EXPECT_THAT(stopped, HasMessage("peer lost"));
}

// As in PyTorch, whether ReLU is folded into the product, whose weight may be packed or in bf16, or
// not; the gradient of a NaN is let through.
TEST(ExecutorTest, ReluKeepsNaN) {
  for (const bool simplify : {true, false}) {
    for (const auto& [packed, bf16] : {std::pair{true, false}, {false, false}, {true, true}}) {
      if (bf16 && DetectCpuBf16() == CpuBf16::kNone) continue;
      GraphBench bench;
      const ValueId x = bench.Input("x", {33, 7});
      const ValueId h = bench.Apply(std::make_shared<Linear>(), {x, bench.Parameter("w1", {70, 7}),
                                                                 bench.Parameter("b1", {70})});
      const ValueId r = bench.Apply(std::make_shared<Relu>(), {h});
      const ValueId y =
          bench.Apply(std::make_shared<Linear>(), {r, bench.Parameter("w2", {3, 70})});
      const ValueId t = bench.Input("t", {33, 3});
      bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {y, t}),
                            {.simplify = simplify, .packed = packed, .bf16 = bf16});
      bench.Run();
      EXPECT_TRUE(std::isfinite(bench.objective()));
      bench.parameter("b1")[69] = kNaN;
      bench.Run();
      EXPECT_TRUE(std::isnan(bench.objective())) << simplify << packed << bf16;
      EXPECT_TRUE(std::isnan(bench.gradient("b1")[69])) << simplify << packed << bf16;
    }
  }
}

// exp(88) is the largest that f32 holds: whichever logit is the largest, the sum is finite.
TEST(ExecutorTest, CrossEntropyOfLargeLogits) {
  GraphBench bench;
  const ValueId labels = bench.Labels(4, 3);
  bench.PrepareTraining(bench.ApplyAll(std::make_shared<TokenCrossEntropy>(),
                                       {bench.Parameter("z", {4, 3}), labels})[0]);
  const std::vector<float> z = {-100, 100, 0, 100, -100, 0, 0, -100, 100, -100, -100, -100};
  std::ranges::copy(z, bench.parameter("z").begin());
  bench.Run();
  double loss = 0;
  for (std::size_t row = 0; row < 4; ++row) {
    const auto logits = std::span(z).subspan(3 * row, 3);
    double sum = 0;
    for (const float one : logits) sum += std::exp(double{one});
    const auto label = static_cast<std::size_t>(bench.labels()[row]);
    loss += std::log(sum) - double{logits[label]};
    for (std::size_t c = 0; c < 3; ++c) {
      const double p = std::exp(double{logits[c]}) / sum;
      EXPECT_NEAR(bench.gradient("z")[3 * row + c],
                  (p - (c == label ? 1 : 0)) * double{GraphBench::kWeight}, 1e-7)
          << row << " " << c;
    }
  }
  EXPECT_NEAR(bench.objective(), loss, 1e-6 * loss);
}

TEST(ExecutorTest, InputsMayMoveBetweenRuns) {
  GraphBench bench;
  const ValueId x = bench.Input("x", {5, 3});
  const ValueId y = bench.Apply(std::make_shared<Relu>(), {x});
  bench.graph().MarkOutput(y);
  bench.Prepare({});
  bench.Run();
  EXPECT_EQ(bench.executor().Output<float>(y)[0], std::max(0.0F, bench.input(x)[0]));
  const std::vector<float> moved(15, 42.0F);
  bench.executor().BindInput(x, moved.data());
  bench.Run();
  for (int i = 0; i < 15; ++i) EXPECT_EQ(bench.executor().Output<float>(y)[i], 42.0F);
}

TEST(ExecutorTest, ViewOfInputMovesWithInput) {
  GraphBench bench;
  const ValueId x = bench.Input("x", {5, 3});
  const ValueId y = bench.Apply(std::make_shared<Reshape>(Shape{15}), {x});
  bench.graph().MarkOutput(y);
  bench.Prepare({});
  EXPECT_EQ(bench.executor().Output<float>(y), bench.input(x).data());
  const std::vector<float> moved(15, 42.0F);
  bench.executor().BindInput(x, moved.data());
  EXPECT_EQ(bench.executor().Output<float>(y), moved.data());
}

TEST(ExecutorTest, SeveralExecutorsMayShareOneArena) {
  GraphBench small;
  small.PrepareTraining(RecordOneLayer(small));
  GraphBench other;
  other.PrepareTraining(RecordOneLayer(other));
  small.Run();
  const double objective = small.objective();
  const std::vector<float> gradients = Copy(small.gradients());

  std::vector<std::byte> arena(static_cast<std::size_t>(std::max(small.executor().arena_bytes(),
                                                                 other.executor().arena_bytes())) +
                               64);
  std::vector<std::byte> scratch(
      static_cast<std::size_t>(
          std::max(small.executor().scratch_bytes(), other.executor().scratch_bytes())) +
      64);
  for (GraphBench* bench : {&small, &other}) bench->executor().Attach(arena.data(), scratch.data());
  for (int i = 0; i < 3; ++i) {
    other.Run();
    small.Run();
    EXPECT_EQ(small.objective(), objective);
    EXPECT_EQ(RelativeError(small.gradients(), gradients), 0);
  }
}

TEST(ExecutorTest, RefusesGraphWithoutFlatBuffer) {
  GraphBench bench;
  bench.PrepareTraining(RecordOneLayer(bench));
  auto context = ValueOrThrow(CpuContext::Create());
  const auto kernels = MakeCpuKernels(*context, {});
  EXPECT_THAT(Executor::Prepare(bench.graph(),
                                {&bench.layout(), bench.parameters().data(), nullptr}, *kernels),
              IsError(ErrorKind::kInternal, ".gradient'"));
}

class UnknownFunction : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "unheard_of"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{inputs[0]};
  }
};

TEST(CpuKernelsTest, RefusesFunctionWithoutKernelByName) {
  GraphBench bench;
  const ValueId x = bench.Input("x", {5, 3});
  bench.graph().MarkOutput(bench.Apply(std::make_shared<UnknownFunction>(), {x}));
  auto context = ValueOrThrow(CpuContext::Create());
  const auto kernels = MakeCpuKernels(*context, {});
  EXPECT_THAT(Executor::Prepare(bench.graph(), {&bench.layout(), nullptr, nullptr}, *kernels),
              IsError(ErrorKind::kConfig, "'unheard_of'", "CPU"));
}

}  // namespace
}  // namespace gaccd
