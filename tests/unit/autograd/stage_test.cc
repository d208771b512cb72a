#include "daemon/autograd/stage.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "daemon/autograd/add.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/product/linear.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

// h = relu(W1 x + b1) is cut; z = W2 h + b2 is compared with t + t, which is recorded before it.
struct TwoStages {
  Graph graph;
  ValueId x = graph.AddInput("x", {{4, 3}});
  ValueId t = graph.AddInput("t", {{4, 2}});
  ValueId twice = Apply(std::make_shared<Add>(), {t, t});
  ValueId y = Layer({5, 3}, 0, x);
  ValueId h = Apply(std::make_shared<Relu>(), {y});
  ValueId z = Layer({2, 5}, 2, h);

  ValueId Apply(std::shared_ptr<const Function> function, std::vector<ValueId> inputs) {
    return ValueOrThrow(graph.Apply(std::move(function), std::move(inputs)))[0];
  }
  ValueId Layer(const Shape& weight, std::size_t parameter, ValueId input) {
    const ValueId w = graph.AddParameter("w", weight, parameter);
    const ValueId b = graph.AddParameter("b", {weight[0]}, parameter + 1);
    return Apply(std::make_shared<Linear>(), {input, w, b});
  }
};

std::vector<std::string> StageNodes(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(node.function->name());
  return names;
}

TEST(StageTest, ComputesInputOnlyValuesWhereRead) {
  TwoStages recorded;
  recorded.Apply(std::make_shared<MeanSquaredError>(), {recorded.z, recorded.twice});
  const StageCuts cuts{.values = {recorded.h}};
  EXPECT_THAT(ValueOrThrow(FindStageParameters(recorded.graph, cuts)),
              ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));

  Graph first = recorded.graph;
  const StageEnds ends = ValueOrThrow(CutStage(cuts, 0, &first));
  EXPECT_EQ(ends.sent, recorded.h);
  EXPECT_EQ(ends.received, std::nullopt);
  EXPECT_THAT(StageNodes(first), ElementsAre("add", "linear", "relu"));

  Graph last = recorded.graph;
  const StageEnds after = ValueOrThrow(CutStage(cuts, 1, &last));
  EXPECT_EQ(after.sent, std::nullopt);
  EXPECT_THAT(StageNodes(last), ElementsAre("add", "linear", "mean_squared_error"));
  EXPECT_EQ(last.nodes()[1].inputs[0], after.received) << "not the value of the other stage";
  EXPECT_EQ(last.nodes()[0].outputs[0], recorded.twice);
}

// A mask of inputs and of a constant, read in both stages, forward and backward.
TEST(StageTest, ComputesValuesOfConstantsWhereRead) {
  TwoStages recorded;
  Graph& graph = recorded.graph;
  const ValueId constant = graph.AddParameter("constant", {4, 2}, 4, /*frozen=*/true);
  const ValueId mask = recorded.Apply(std::make_shared<Add>(), {recorded.twice, constant});
  const auto multiply = std::make_shared<Combine>(CombineKind::kMultiply);
  const ValueId cut = recorded.Apply(multiply, {recorded.z, mask});
  const ValueId masked = recorded.Apply(multiply, {recorded.Layer({2, 2}, 5, cut), mask});
  const ValueId loss = recorded.Apply(std::make_shared<MeanSquaredError>(), {masked, recorded.t});
  const ValueId seed = graph.AddInput("weight", {{1}, DType::kF32});
  std::vector<std::optional<ValueId>> gradients;
  ASSERT_OK(RecordGradients(graph, loss, seed, &gradients));
  EXPECT_EQ(gradients[Index(mask)], std::nullopt);
  const StageCuts cuts{.values = {cut}, .gradients = {*gradients[Index(cut)]}, .seed = seed};
  EXPECT_THAT(ValueOrThrow(FindStageParameters(graph, cuts)),
              ElementsAre(ElementsAre(0, 1, 2, 3, 4), ElementsAre(4, 5, 6)));
  for (const std::size_t stage : {0, 1}) {
    Graph part = graph;
    ASSERT_OK(CutStage(cuts, stage, &part));
    const std::vector<std::string> names = StageNodes(part);
    EXPECT_EQ(std::ranges::count(names, "add"), 2);
    EXPECT_EQ(std::ranges::count(names, "combine_multiply"), 2) << "forward and backward";
    EXPECT_EQ(std::ranges::count(names, "linear_weight_gradient"), stage == 0 ? 2 : 1);
    for (const Node& node : part.nodes()) {
      EXPECT_TRUE(node.function->name() != "combine_multiply" || node.inputs[1] == mask);
    }
  }
}

TEST(StageTest, SplitBackwardComputesSentGradientsFirst) {
  TwoStages recorded;
  Graph& graph = recorded.graph;
  const ValueId loss =
      recorded.Apply(std::make_shared<MeanSquaredError>(), {recorded.z, recorded.twice});
  const ValueId seed = graph.AddInput("weight", {{1}, DType::kF32});
  std::vector<std::optional<ValueId>> gradients;
  ASSERT_OK(RecordGradients(graph, loss, seed, &gradients));
  const StageCuts cuts{
      .values = {recorded.h}, .gradients = {*gradients[Index(recorded.h)]}, .seed = seed};
  Graph whole = graph;
  ASSERT_OK(CutStage(cuts, 1, &whole));
  Graph divided = graph;
  const StageEnds ends = ValueOrThrow(CutStage(cuts, 1, &divided, /*divide_backward=*/true));
  const std::vector<std::string> names = StageNodes(divided);
  ASSERT_EQ(names.size(), whole.nodes().size() + 1);
  const auto turn = std::ranges::find(names, "segment_boundary");
  EXPECT_THAT(std::vector(turn + 1, names.end()),
              UnorderedElementsAre("linear_weight_gradient", "bias_gradient"));
  EXPECT_EQ(divided.nodes()[static_cast<std::size_t>(turn - names.begin())].outputs[0],
            ends.sent_gradient);
  // The first stage sends none, and has nothing to divide.
  Graph first = graph;
  ASSERT_OK(CutStage(cuts, 0, &first, /*divide_backward=*/true));
  EXPECT_EQ(std::ranges::count(StageNodes(first), "segment_boundary"), 1);
}

TEST(StageTest, RefusesValueThatBypassesCut) {
  TwoStages recorded;
  const ValueId around = recorded.Layer({2, 5}, 4, recorded.y);
  recorded.Apply(std::make_shared<MeanSquaredError>(), {recorded.z, around});
  Graph last = recorded.graph;
  EXPECT_THAT(CutStage({.values = {recorded.h}}, 1, &last),
              IsError(ErrorKind::kConfig, "stage 1 (from 0) also needs", "of stage 0"));
}

}  // namespace
}  // namespace gaccd
