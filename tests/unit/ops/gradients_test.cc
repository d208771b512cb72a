// Every function's gradient against central differences of the objective that the same graph
// computes. A new function gets a line in graph_cases.cc or image_cases.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/product/linear.h"
#include "tests/sanitized.h"
#include "tests/support/graph_bench.h"
#include "tests/support/graph_cases.h"
#include "tests/unit/ops/scale_function.h"

namespace gaccd {
namespace {

// The inputs of the functions are parameters too, so that their gradients can be seen.

// A step that f32 represents exactly. Most objectives here are quadratic in every single value: a
// central difference then has no truncation error. Cross-entropy and a weight used twice have one,
// h^2 / 6 times the third derivative.
constexpr float kStep = 1.0F / 64;
constexpr double kTruncation = 1e-3;
// f32 values under the objective bring it some 1e-7 of relative rounding error, which the
// difference quotient divides by the step. A forgotten term or factor is off by thousands of times
// as much.
constexpr double kRounding = 3e-7 / kStep;

// Any value as an objective: its mean squared distance from fixed random targets.
ValueId Distance(GraphBench& bench, ValueId y) {
  const Shape shape = bench.graph().value(y).spec.shape;  // a copy: recording moves the values
  const ValueId t = bench.Input("targets", shape);
  return bench.Apply(std::make_shared<MeanSquaredError>(), {y, t});
}

// A value that is no parameter.
ValueId ApplyFirstLinear(GraphBench& bench, const CaseSize& s) {
  return bench.Apply(std::make_shared<Linear>(),
                     {bench.Input("x", {s.rows, s.in}), bench.Parameter("fc.w", {s.out, s.in}),
                      bench.Parameter("fc.b", {s.out})});
}

ValueId ApplyScale(GraphBench& bench, ValueId x, ValueId gain, ValueId shift,
                   bool accumulate = true) {
  return bench.Apply(std::make_shared<Scale>(accumulate), {x, gain, shift});
}

// Of a function that only this test has.
const GraphCase kScaleCases[] = {
    {"three_gradients_in_one_node",  // of an activation and two parameters
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = ApplyFirstLinear(bench, s);
       return Distance(bench, ApplyScale(bench, x, bench.Parameter("gain", {s.out}),
                                         bench.Parameter("shift", {s.out})));
     }},
    {"three_gradients_by_accumulate_nodes",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = ApplyFirstLinear(bench, s);
       return Distance(bench, ApplyScale(bench, x, bench.Parameter("gain", {s.out}),
                                         bench.Parameter("shift", {s.out}), false));
     }},
    {"three_gradients_of_parameters",
     [](GraphBench& bench, const CaseSize& s) {
       return Distance(
           bench, ApplyScale(bench, bench.Parameter("x", {s.rows, s.in}),
                             bench.Parameter("gain", {s.in}), bench.Parameter("shift", {s.in})));
     }},
    {"three_gradients_one_unused",
     [](GraphBench& bench, const CaseSize& s) {
       return Distance(
           bench, ApplyScale(bench, bench.Input("x", {s.rows, s.in}),
                             bench.Parameter("gain", {s.in}), bench.Parameter("shift", {s.in})));
     }},
    {"one_parameter_as_two_inputs_of_a_node",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId both = bench.Parameter("both", {s.in});
       return Distance(bench, ApplyScale(bench, bench.Input("x", {s.rows, s.in}), both, both));
     }},
    {"tied_gain",  // one backward node adds to a gradient and overwrites another
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId gain = bench.Parameter("gain", {s.in});
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId y = ApplyScale(bench, x, gain, bench.Parameter("shift1", {s.in}));
       return Distance(bench, ApplyScale(bench, y, gain, bench.Parameter("shift2", {s.in})));
     }},
    {"weight_tied_between_two_functions",  // and a third use, through an activation
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId w = bench.Parameter("w", {s.in, s.in}, 1.0 / static_cast<double>(s.in));
       const ValueId table =
           ApplyScale(bench, w, bench.Parameter("gain", {s.in}), bench.Parameter("shift", {s.in}));
       const ValueId y = bench.Apply(std::make_shared<Linear>(), {table, w});
       return Distance(bench, bench.Apply(std::make_shared<Add>(), {y, w}));
     }},
};

constexpr CaseSize kAllSizes[] = {{1, 1, 1},  {1, 7, 5},  {3, 1, 2},
                                  {4, 17, 9}, {33, 5, 3}, {16, 32, 16}};
const std::span kSizes = std::span(kAllSizes).first(tests::kSanitized ? 4 : 6);

double ObjectiveAt(GraphBench& bench, std::size_t element, float value) {
  bench.parameters()[element] = value;
  bench.Run();
  return bench.objective() * GraphBench::kWeight;
}

std::vector<float> NumericGradient(GraphBench& bench, const FlatEntry& entry) {
  std::vector<float> numeric;
  for (std::int64_t i = 0; i < entry.elements; ++i) {
    const auto element = static_cast<std::size_t>(entry.offset + i);
    const float value = bench.parameters()[element];
    const float above = value + kStep;
    const float below = value - kStep;
    const double rise = ObjectiveAt(bench, element, above) - ObjectiveAt(bench, element, below);
    bench.parameters()[element] = value;
    numeric.push_back(static_cast<float>(rise / (static_cast<double>(above) - below)));
  }
  return numeric;
}

double Largest(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return static_cast<double>(largest);
}

class GradientsTest : public testing::TestWithParam<std::tuple<GraphCase, CaseSize>> {
 protected:
  void SetUp() override {
    const auto& [test_case, size] = GetParam();
    bench_.PrepareTraining(test_case.record(bench_, size), {.own_kernel = MakeScaleKernel});
    ASSERT_FALSE(HasFatalFailure());
    // Holds every unit of a ReLU clear of its corner.
    if (bench_.layout().Find("fc1.b") == nullptr) return;
    for (float& value : bench_.parameter("fc1.b")) value += value < 0 ? -3.0F : 3.0F;
  }
  GraphBench bench_;
};

TEST_P(GradientsTest, EqualsFiniteDifferences) {
  bench_.Run();
  const double objective = bench_.objective() * GraphBench::kWeight;
  const std::vector<float> analytic(bench_.gradients().begin(), bench_.gradients().end());
  for (const FlatEntry& entry : bench_.layout().entries()) {
    const auto part = std::span<const float>(analytic).subspan(
        static_cast<std::size_t>(entry.offset), static_cast<std::size_t>(entry.elements));
    const std::vector<float> numeric = NumericGradient(bench_, entry);
    const double allowed = kTruncation * Largest(part) + kRounding * objective;
    for (std::size_t i = 0; i < part.size(); ++i) {
      ASSERT_NEAR(part[i], numeric[i], allowed)
          << entry.name << " " << ToString(entry.shape) << " element " << i;
    }
  }
}

TEST_P(GradientsTest, LaterMicroStepsAdd) {
  std::fill(bench_.gradients().begin(), bench_.gradients().end(), 1e9F);  // must be overwritten
  bench_.Run(true);
  for (const FlatEntry& entry : bench_.layout().entries()) {
    for (const float g : bench_.gradient(entry.name)) ASSERT_LT(g, 1e6F) << entry.name;
  }
  std::vector<float> expected(bench_.gradients().begin(), bench_.gradients().end());
  bench_.Run(false);
  bench_.Run(false);
  for (const FlatEntry& entry : bench_.layout().entries()) {
    const auto part = std::span<float>(expected).subspan(static_cast<std::size_t>(entry.offset),
                                                         static_cast<std::size_t>(entry.elements));
    for (float& g : part) g *= 3;
    EXPECT_LT(RelativeError(bench_.gradient(entry.name), part), 1e-6) << entry.name;
  }
}

// The product of a large weight is another one.
TEST(LargeGradientsTest, LaterMicroStepsAdd) {
  GraphBench bench;
  const ValueId x = bench.Input("x", {48, 512});
  bench.PrepareTraining(Distance(
      bench, bench.Apply(std::make_shared<Linear>(), {x, bench.Parameter("w", {400, 512})})));
  bench.Run(true);
  std::vector<float> expected(bench.gradients().begin(), bench.gradients().end());
  for (float& g : expected) g *= 2;
  bench.Run(false);
  EXPECT_LT(RelativeError(bench.gradients(), expected), 1e-6);
}

// A function whose other parameter has been written before.
TEST(SharedParametersTest, FirstMicroStepOverwritesOthers) {
  for (const bool gamma : {true, false}) {
    GraphBench bench;
    const ValueId x = bench.Input("x", {6, 8});
    const ValueId g = bench.Parameter("g", {8});
    const ValueId b = bench.Parameter("b", {8});
    const ValueId own = bench.Parameter("own", {8});
    const ValueId inner = bench.Apply(std::make_shared<LayerNorm>(), {x, g, b});
    bench.PrepareTraining(Distance(bench, bench.Apply(std::make_shared<LayerNorm>(),
                                                      {inner, gamma ? g : own, gamma ? own : b})));
    std::fill(bench.gradients().begin(), bench.gradients().end(), 1e9F);
    bench.Run(true);
    for (const FlatEntry& entry : bench.layout().entries()) {
      for (const float one : bench.gradient(entry.name)) ASSERT_LT(one, 1e6F) << entry.name;
    }
  }
}

std::string TestName(const testing::TestParamInfo<std::tuple<GraphCase, CaseSize>>& info) {
  const auto& [test_case, size] = info.param;
  return StrCat(test_case.name, "_", size.rows, "x", size.in, "x", size.out);
}

INSTANTIATE_TEST_SUITE_P(Scale, GradientsTest,
                         testing::Combine(testing::ValuesIn(kScaleCases),
                                          testing::ValuesIn(kSizes)),
                         TestName);

INSTANTIATE_TEST_SUITE_P(Layers, GradientsTest,
                         testing::Combine(testing::ValuesIn(LayerCases().begin(),
                                                            LayerCases().end()),
                                          testing::ValuesIn(kSizes)),
                         TestName);

INSTANTIATE_TEST_SUITE_P(Sequences, GradientsTest,
                         testing::Combine(testing::ValuesIn(SequenceCases().begin(),
                                                            SequenceCases().end()),
                                          testing::ValuesIn(kSizes)),
                         TestName);

INSTANTIATE_TEST_SUITE_P(Shapes, GradientsTest,
                         testing::Combine(testing::ValuesIn(ShapeCases().begin(),
                                                            ShapeCases().end()),
                                          testing::ValuesIn(kSizes)),
                         TestName);

const CaseSize kImageSizes[] = {{1, 1, 1}, {2, 3, 4}, {3, 8, 9}};

INSTANTIATE_TEST_SUITE_P(Images, GradientsTest,
                         testing::Combine(testing::ValuesIn(ImageCases().begin(),
                                                            ImageCases().end()),
                                          testing::ValuesIn(kImageSizes)),
                         TestName);

}  // namespace
}  // namespace gaccd
