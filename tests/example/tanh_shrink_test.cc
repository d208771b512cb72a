#include "tests/example/tanh_shrink.h"

#include <gtest/gtest.h>

#include <cmath>

#include "daemon/ops/loss/mean_squared_error.h"
#include "tests/support/graph_bench.h"

namespace gaccd::nn {
namespace {

// The mean squared distance of TanhShrink(x) from targets, and its gradient, by the formula.
TEST(TanhShrinkTest, EqualsFormulaAndGradient) {
  constexpr int kRows = 3;
  constexpr int kColumns = 7;
  GraphBench bench;
  const ValueId x = bench.Parameter("x", {kRows, kColumns}, 2);
  const ValueId targets = bench.Input("targets", {kRows, kColumns});
  const ParameterList none;
  const SampleSpec sample;
  Recorder recorder(bench.graph(), none, sample, {.samples = kRows});
  ParameterList list;
  const ValueId y = TanhShrink(Scope(list) / "shrink")(recorder, x);
  ASSERT_TRUE(recorder.status().ok()) << recorder.status().message();
  EXPECT_TRUE(list.specs().empty());
  bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {y, targets}));
  bench.Run();

  double sum = 0;
  std::vector<float> expected;
  for (std::size_t i = 0; i < kRows * kColumns; ++i) {
    const double value = bench.parameter("x")[i];
    const double tanh = std::tanh(value);
    const double distance = value - tanh - bench.input(targets)[i];
    sum += distance * distance / kColumns;
    expected.push_back(
        static_cast<float>(GraphBench::kWeight * 2 * distance / kColumns * tanh * tanh));
  }
  EXPECT_NEAR(bench.objective(), sum, 1e-5 * sum);
  EXPECT_LT(RelativeError(bench.gradient("x"), expected), 1e-5);
}

}  // namespace
}  // namespace gaccd::nn
