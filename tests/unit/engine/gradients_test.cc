// Every function's gradient against central differences of the objective that the same graph
// computes. A new function gets a line in kCases, or in
// sequence_cases.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/ops/flatten.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/relu.h"
#include "daemon/ops/reshape.h"
#include "daemon/ops/softmax_cross_entropy.h"
#include "tests/unit/engine/graph_bench.h"
#include "tests/unit/engine/scale_function.h"
#include "tests/unit/engine/sequence_cases.h"

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

// Moves every value at least 0.25 away from 0, where ReLU has no derivative.
void KeepOffZero(std::span<float> values) {
  for (float& value : values) value += value < 0 ? -0.25F : 0.25F;
}

ValueId LinearOf(GraphBench& bench, ValueId x, const std::string& name, const CaseSize& size,
                 bool bias) {
  std::vector<ValueId> inputs = {x, bench.Parameter(name + ".w", {size.out, size.in})};
  if (bias) inputs.push_back(bench.Parameter(name + ".b", {size.out}));
  return bench.Apply(std::make_shared<Linear>(), std::move(inputs));
}

ValueId ScaleOf(GraphBench& bench, ValueId x, ValueId gain, ValueId shift, bool accumulate = true) {
  return bench.Apply(std::make_shared<Scale>(accumulate), {x, gain, shift});
}

using Case = GraphCase;

const Case kCases[] = {
    {"linear_with_bias",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in});
       return Distance(bench, LinearOf(bench, x, "fc", s, true));
     }},
    {"linear_without_bias",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in});
       return Distance(bench, LinearOf(bench, x, "fc", s, false));
     }},
    {"linear_of_transposed_weight",  // after another, so that there is an input gradient
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = LinearOf(bench, bench.Input("x", {s.rows, s.in}), "fc", s, true);
       const ValueId w = bench.Parameter("w", {s.out, s.in});
       const ValueId b = bench.Parameter("b", {s.in});
       const auto linear = std::make_shared<Linear>(false, WeightOrder::kInOut);
       return Distance(bench, bench.Apply(linear, {x, w, b}));
     }},
    {"linear_of_linear",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId y = LinearOf(bench, x, "fc1", s, true);
       return Distance(bench, LinearOf(bench, y, "fc2", {s.rows, s.out, s.in}, true));
     }},
    {"linear_then_relu",  // one folded node; biases of +-3 hold every unit clear of 0
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId w = bench.Parameter("w", {s.out, s.in}, 1.0 / static_cast<double>(s.in));
       const ValueId b = bench.Parameter("b", {s.out});
       for (float& value : bench.parameter("b")) value += value < 0 ? -2.0F : 2.0F;
       const ValueId y = bench.Apply(std::make_shared<Linear>(), {x, w, b});
       return Distance(bench, bench.Apply(std::make_shared<Relu>(), {y}));
     }},
    {"relu",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in});
       KeepOffZero(bench.parameter("x"));
       return Distance(bench, bench.Apply(std::make_shared<Relu>(), {x}));
     }},
    {"flatten",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in, 3});
       const ValueId y = bench.Apply(std::make_shared<Flatten>(), {x});
       return Distance(bench, LinearOf(bench, y, "fc", {s.rows, s.in * 3, s.out}, true));
     }},
    {"flatten_of_activation",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in, 3});
       KeepOffZero(bench.parameter("x"));
       const ValueId y = bench.Apply(std::make_shared<Relu>(), {x});
       return Distance(bench, bench.Apply(std::make_shared<Flatten>(), {y}));
     }},
    {"reshape_of_parameter",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {3, s.rows, 2, s.in});
       const ValueId y =
           bench.Apply(std::make_shared<Reshape>(Shape{Reshape::kRest, s.in * 2}), {x});
       return Distance(bench, LinearOf(bench, y, "fc", {s.rows * 3, s.in * 2, s.out}, true));
     }},
    {"linear_of_sequences",  // [B, T, in] -> [B T, in] -> [B T, in] -> [B, T, in], plus x
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, 2, s.in});
       const ValueId rows = bench.Apply(std::make_shared<Reshape>(Shape{-1, s.in}), {x});
       const ValueId y = LinearOf(bench, rows, "fc", {s.rows * 2, s.in, s.in}, true);
       const ValueId back = bench.Apply(std::make_shared<Reshape>(Shape{s.rows, 2, s.in}), {y});
       const ValueId sum = bench.Apply(std::make_shared<Add>(), {back, x});
       return Distance(bench, bench.Apply(std::make_shared<Flatten>(), {sum}));
     }},
    {"softmax_cross_entropy",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId z = bench.Parameter("z", {s.rows, s.out + 1}, 3);
       const ValueId labels = bench.Labels(s.rows, s.out + 1);
       return bench.Apply(std::make_shared<SoftmaxCrossEntropy>(), {z, labels});
     }},
    {"mean_squared_error",
     [](GraphBench& bench, const CaseSize& s) {
       return Distance(bench, bench.Parameter("y", {s.rows, s.out}));
     }},
    {"add_of_parameters",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId a = bench.Parameter("a", {s.rows, s.in});
       const ValueId b = bench.Parameter("b", {s.rows, s.in});
       return Distance(bench, bench.Apply(std::make_shared<Add>(), {a, b}));
     }},
    {"add_of_itself",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId a = bench.Parameter("a", {s.rows, s.in});
       return Distance(bench, bench.Apply(std::make_shared<Add>(), {a, a}));
     }},
    {"value_with_two_users",  // a residual connection: relu(y) + y
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in});
       KeepOffZero(bench.parameter("x"));
       const ValueId zero = bench.Parameter("zero", {s.rows, s.in}, 0);
       const ValueId y = bench.Apply(std::make_shared<Add>(), {x, zero});
       const ValueId r = bench.Apply(std::make_shared<Relu>(), {y});
       return Distance(bench, bench.Apply(std::make_shared<Add>(), {r, y}));
     }},
    {"parameter_used_twice",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId w = bench.Parameter("w", {s.in, s.in}, 1.0 / static_cast<double>(s.in));
       const ValueId b = bench.Parameter("b", {s.in});
       const ValueId y = bench.Apply(std::make_shared<Linear>(), {x, w, b});
       return Distance(bench, bench.Apply(std::make_shared<Linear>(), {y, w, b}));
     }},
    {"three_gradients_in_one_node",  // of an activation and two parameters
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = LinearOf(bench, bench.Input("x", {s.rows, s.in}), "fc", s, true);
       return Distance(bench, ScaleOf(bench, x, bench.Parameter("gain", {s.out}),
                                      bench.Parameter("shift", {s.out})));
     }},
    {"three_gradients_by_accumulate_nodes",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId x = LinearOf(bench, bench.Input("x", {s.rows, s.in}), "fc", s, true);
       return Distance(bench, ScaleOf(bench, x, bench.Parameter("gain", {s.out}),
                                      bench.Parameter("shift", {s.out}), false));
     }},
    {"three_gradients_of_parameters",
     [](GraphBench& bench, const CaseSize& s) {
       return Distance(bench,
                       ScaleOf(bench, bench.Parameter("x", {s.rows, s.in}),
                               bench.Parameter("gain", {s.in}), bench.Parameter("shift", {s.in})));
     }},
    {"three_gradients_one_unused",
     [](GraphBench& bench, const CaseSize& s) {
       return Distance(
           bench, ScaleOf(bench, bench.Input("x", {s.rows, s.in}), bench.Parameter("gain", {s.in}),
                          bench.Parameter("shift", {s.in})));
     }},
    {"one_parameter_as_two_inputs_of_a_node",
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId both = bench.Parameter("both", {s.in});
       return Distance(bench, ScaleOf(bench, bench.Input("x", {s.rows, s.in}), both, both));
     }},
    {"tied_gain",  // one backward node adds to a gradient and overwrites another
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId gain = bench.Parameter("gain", {s.in});
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId y = ScaleOf(bench, x, gain, bench.Parameter("shift1", {s.in}));
       return Distance(bench, ScaleOf(bench, y, gain, bench.Parameter("shift2", {s.in})));
     }},
    {"weight_tied_between_two_functions",  // and a third use, through an activation
     [](GraphBench& bench, const CaseSize& s) {
       const ValueId w = bench.Parameter("w", {s.in, s.in}, 1.0 / static_cast<double>(s.in));
       const ValueId table =
           ScaleOf(bench, w, bench.Parameter("gain", {s.in}), bench.Parameter("shift", {s.in}));
       const ValueId y = bench.Apply(std::make_shared<Linear>(), {table, w});
       return Distance(bench, bench.Apply(std::make_shared<Add>(), {y, w}));
     }},
};

const CaseSize kSizes[] = {{1, 1, 1}, {1, 7, 5}, {3, 1, 2}, {4, 17, 9}, {33, 5, 3}, {16, 32, 16}};

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

class GradientsTest : public testing::TestWithParam<std::tuple<Case, CaseSize>> {
 protected:
  void SetUp() override {
    const auto& [test_case, size] = GetParam();
    bench_.PrepareTraining(test_case.record(bench_, size), {.own_kernel = MakeScaleKernel});
    ASSERT_FALSE(HasFatalFailure());
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

std::string TestName(const testing::TestParamInfo<std::tuple<Case, CaseSize>>& info) {
  const auto& [test_case, size] = info.param;
  return StrCat(test_case.name, "_", size.rows, "x", size.in, "x", size.out);
}

INSTANTIATE_TEST_SUITE_P(All, GradientsTest,
                         testing::Combine(testing::ValuesIn(kCases), testing::ValuesIn(kSizes)),
                         TestName);

INSTANTIATE_TEST_SUITE_P(Sequences, GradientsTest,
                         testing::Combine(testing::ValuesIn(SequenceCases().begin(),
                                                            SequenceCases().end()),
                                          testing::ValuesIn(kSizes)),
                         TestName);

}  // namespace
}  // namespace gaccd
