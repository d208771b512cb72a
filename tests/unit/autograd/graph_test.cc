#include "daemon/autograd/graph.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/autograd/add.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/product/linear.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

struct Refusal {
  std::shared_ptr<const Function> function;
  std::vector<ValueSpec> inputs;
  std::vector<const char*> message;  // all of these are in it
};

ValueSpec F32Spec(Shape shape) { return {std::move(shape), DType::kF32}; }
ValueSpec I32(Shape shape) { return {std::move(shape), DType::kI32}; }

TEST(GraphTest, RefusesMismatchNamingBothShapes) {
  const std::vector<Refusal> refusals = {
      {std::make_shared<Linear>(),
       {F32Spec({8, 3}), F32Spec({5, 4})},
       {"linear", "[5, 4]", "[8, 3]"}},
      {std::make_shared<Linear>(),
       {F32Spec({8, 3, 1}), F32Spec({5, 3})},
       {"the input", "[8, 3, 1]"}},
      {std::make_shared<Linear>(), {F32Spec({8, 3}), F32Spec({3})}, {"the weight", "[3]"}},
      {std::make_shared<Linear>(),
       {F32Spec({8, 3}), F32Spec({5, 3}), F32Spec({3})},
       {"the bias", "[5]", "[3]"}},
      {std::make_shared<Linear>(), {I32({8, 3}), F32Spec({5, 3})}, {"f32", "i32 [8, 3]"}},
      {std::make_shared<Linear>(), {F32Spec({8, 3})}, {"expected 2 or 3 inputs", "1"}},
      {std::make_shared<Add>(), {F32Spec({8, 3}), F32Spec({8, 4})}, {"add", "[8, 3]", "[8, 4]"}},
      {std::make_shared<Add>(), {F32Spec({8, 3}), I32({8, 3})}, {"f32 [8, 3]", "i32 [8, 3]"}},
      {std::make_shared<Add>(),
       {I32({8, 3}), I32({8, 3})},
       {"both f32, bf16 or fp16, found i32", "i32 [8, 3]"}},
      {std::make_shared<Add>(), {F32Spec({8, 3})}, {"expected 2 inputs", "1"}},
      {std::make_shared<Relu>(), {I32({8, 3})}, {"relu", "i32 [8, 3]"}},
      {std::make_shared<Reshape>(Shape{8, 4}), {F32Spec({8, 3})}, {"24 elements", "[8, 4]"}},
      {std::make_shared<Reshape>(Shape{-1, 5}), {F32Spec({8, 3})}, {"24 elements", "[-1, 5]"}},
      {std::make_shared<Reshape>(Shape{-1, -1}), {F32Spec({8, 3})}, {"reshape", "-1"}},
      {std::make_shared<Reshape>(Shape{-1, 0}), {F32Spec({8, 3})}, {"24 elements", "[-1, 0]"}},
      {std::make_shared<MeanSquaredError>(),
       {F32Spec({8, 3}), F32Spec({8, 1})},
       {"mean_squared_error", "the target", "[8, 3]", "[8, 1]"}},
      {std::make_shared<LabelRanks>(), {F32Spec({8, 3}), I32({9})}, {"the labels", "[8]", "[9]"}},
  };
  for (const Refusal& refusal : refusals) {
    Graph graph;
    std::vector<ValueId> inputs;
    for (const ValueSpec& spec : refusal.inputs) inputs.push_back(graph.AddInput("in", spec));
    const auto outputs = graph.Apply(refusal.function, inputs);
    EXPECT_THAT(outputs, IsError(ErrorKind::kConfig, refusal.function->name()))
        << refusal.message[0];
    for (const char* part : refusal.message) EXPECT_THAT(outputs, HasMessage(HasSubstr(part)));
    EXPECT_TRUE(graph.nodes().empty()) << refusal.function->name();
  }
}

TEST(GraphTest, OutputShapesFollowTheInputs) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32Spec({8, 2, 3}));
  const ValueId labels = graph.AddInput("labels", I32({8}));
  const ValueId w = graph.AddParameter("w", {5, 6}, 0);
  const ValueId flat = (*graph.Apply(std::make_shared<Reshape>(Shape{8, Reshape::kRest}), {x}))[0];
  EXPECT_EQ(graph.value(flat).spec, F32Spec({8, 6}));
  EXPECT_FALSE(graph.value(flat).needs_gradient);
  const ValueId y = (*graph.Apply(std::make_shared<Linear>(), {flat, w}))[0];
  EXPECT_EQ(graph.value(y).spec, F32Spec({8, 5}));
  EXPECT_TRUE(graph.value(y).needs_gradient);
  const auto loss = *graph.Apply(std::make_shared<TokenCrossEntropy>(), {y, labels});
  for (const std::size_t sum : {0, 1}) {
    EXPECT_EQ(graph.value(loss[sum]).spec, (ValueSpec{{1}, DType::kF64}));
  }
  EXPECT_EQ(graph.value(loss[2]).spec, F32Spec({8, 2}));
}

TEST(GraphTest, ReshapeKeepsTypeAndElements) {
  const auto reshaped = [](Shape shape, ValueSpec in) {
    return (*Reshape(std::move(shape)).Infer(std::vector<ValueSpec>{std::move(in)}))[0];
  };
  EXPECT_EQ(reshaped({-1, 3}, I32({4, 2, 3})), I32({8, 3}));
  EXPECT_EQ(reshaped({4, 2, 3}, F32Spec({8, 3})), F32Spec({4, 2, 3}));
  EXPECT_EQ(reshaped({-1, 3}, F32Spec({0, 2, 3})), F32Spec({0, 3}));
  EXPECT_EQ(reshaped({}, F32Spec({1})), F32Spec({}));
}

TEST(GraphTest, RefusesTooLargeOutput) {
  Graph graph;
  const ValueId x = graph.AddInput("x", F32Spec({std::int64_t{1} << 40, 1}));
  const ValueId w = graph.AddInput("w", F32Spec({std::int64_t{1} << 40, 1}));
  EXPECT_THAT(graph.Apply(std::make_shared<Linear>(), {x, w}),
              IsError(ErrorKind::kConfig, "linear", "2^48"));
}

TEST(GraphTest, RequiresFittingAccumulatingParameterGradient) {
  Graph graph;
  const ValueId dy = graph.AddInput("dy", F32Spec({8, 5}));
  const ValueId x = graph.AddInput("x", F32Spec({8, 3}));
  const ValueId w = graph.AddParameter("fc.weight", {5, 4}, 0);
  EXPECT_THAT(
      graph.ApplyToGradients(std::make_shared<LinearWeightGradient>(), {dy, x}, {{w}}).status(),
      IsError(ErrorKind::kInternal, "fc.weight", "[5, 4]", "[5, 3]"));

  const ValueId p = graph.AddParameter("p", {8, 5}, 1);
  EXPECT_THAT(graph.ApplyToGradients(std::make_shared<Relu>(), {dy}, {{p}}).status(),
              IsError(ErrorKind::kInternal, "relu", "cannot accumulate"));

  EXPECT_THAT(graph.ApplyToGradients(std::make_shared<Relu>(), {dy}, {}).status(),
              IsError(ErrorKind::kInternal, "0 inputs", "1 outputs"));
  EXPECT_TRUE(graph.nodes().empty());
}

// Rounds to integers; its gradient is never asked for.
class ToInteger : public Function {
 public:
  [[nodiscard]] std::string_view name() const override { return "to_integer"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>{{inputs[0].shape, DType::kI64}};
  }
};

TEST(GraphTest, IntegersNeedNoGradient) {
  Graph graph;
  const ValueId p = graph.AddParameter("p", {8, 5}, 0);
  const ValueId i = (*graph.Apply(std::make_shared<ToInteger>(), {p}))[0];
  EXPECT_FALSE(graph.value(i).needs_gradient);
}

// The gradient of its input has a row too many.
class WrongGradient : public Relu {
 public:
  Status Gradient(GradientScope& scope) const override {
    class OneRowMore : public Function {
     public:
      [[nodiscard]] std::string_view name() const override { return "one_row_more"; }
      [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
        return std::vector<ValueSpec>{{{inputs[0].shape[0] + 1, inputs[0].shape[1]}, DType::kF32}};
      }
    };
    return scope.SetInputGradient(0, std::make_shared<OneRowMore>(), {scope.OutputGradient(0)});
  }
};

TEST(GradientTest, RefusesAGradientOfAnotherShape) {
  Graph graph;
  const ValueId x = graph.AddParameter("x", {8, 3}, 0);
  const ValueId t = graph.AddInput("t", F32Spec({8, 3}));
  const ValueId seed = graph.AddInput("seed", F32Spec({1}));
  const ValueId y = (*graph.Apply(std::make_shared<Relu>(), {x}))[0];
  const ValueId z = (*graph.Apply(std::make_shared<WrongGradient>(), {y}))[0];
  const ValueId loss = (*graph.Apply(std::make_shared<MeanSquaredError>(), {z, t}))[0];
  EXPECT_THAT(RecordGradients(graph, loss, seed),
              IsError(ErrorKind::kInternal, "one_row_more", "[8, 3]", "[9, 3]"));
}

TEST(GradientTest, RefusesAnObjectiveWithoutParameters) {
  Graph graph;
  const ValueId y = graph.AddInput("y", F32Spec({8, 3}));
  const ValueId t = graph.AddInput("t", F32Spec({8, 3}));
  const ValueId seed = graph.AddInput("seed", F32Spec({1}));
  const ValueId loss = (*graph.Apply(std::make_shared<MeanSquaredError>(), {y, t}))[0];
  EXPECT_THAT(RecordGradients(graph, loss, seed),
              IsError(ErrorKind::kConfig, "depends on no parameter"));
}

TEST(GradientTest, RefusesFunctionsAndInputsWithoutGradient) {
  {  // a gradient is no objective
    Graph graph;
    const ValueId y = graph.AddParameter("y", {8, 3}, 0);
    const ValueId t = graph.AddInput("t", F32Spec({8, 3}));
    const ValueId seed = graph.AddInput("seed", F32Spec({1}));
    const ValueId dy =
        (*graph.Apply(std::make_shared<MeanSquaredErrorGradient>(), {y, t, seed}))[0];
    EXPECT_THAT(RecordGradients(graph, dy, seed),
                IsError(ErrorKind::kConfig, "'mean_squared_error_gradient' has no gradient"));
  }
  {  // a target that would need a gradient
    Graph graph;
    const ValueId y = graph.AddParameter("y", {8, 3}, 0);
    const ValueId t = graph.AddParameter("t", {8, 3}, 1);
    const ValueId seed = graph.AddInput("seed", F32Spec({1}));
    const ValueId loss = (*graph.Apply(std::make_shared<MeanSquaredError>(), {y, t}))[0];
    EXPECT_THAT(RecordGradients(graph, loss, seed), HasMessage(HasSubstr("the target")));
  }
  {  // an objective on the statistics
    Graph graph;
    const ValueId z = graph.AddParameter("z", {8, 3}, 0);
    const ValueId labels = graph.AddInput("labels", I32({8}));
    const ValueId t = graph.AddInput("t", F32Spec({8, 2}));
    const ValueId seed = graph.AddInput("seed", F32Spec({1}));
    const ValueId s = (*graph.Apply(std::make_shared<TokenCrossEntropy>(), {z, labels}))[2];
    const ValueId loss = (*graph.Apply(std::make_shared<MeanSquaredError>(), {s, t}))[0];
    EXPECT_THAT(RecordGradients(graph, loss, seed),
                HasMessage(HasSubstr("only the loss has a gradient")));
  }
}

}  // namespace
}  // namespace gaccd
