#include "daemon/autograd/simplify.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "daemon/autograd/function.h"
#include "daemon/ops/collective/collective.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/relu.h"
#include "daemon/ops/product/linear.h"
#include "daemon/replica/model.h"
#include "tests/support/graph_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using testing::UnorderedElementsAre;

// The functions that get a kernel, in their order; a folded one with what it does too.
std::vector<std::string> Kernels(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) {
    if (node.function->is_view()) continue;
    const auto* linear = dynamic_cast<const Linear*>(node.function.get());
    names.push_back(std::string(node.function->name()) +
                    (linear != nullptr && linear->relu() ? "+relu" : ""));
  }
  return names;
}

struct Recorded {
  ValueId y, r, loss;
};
Recorded RecordTwoLayers(GraphBench& bench) {
  const ValueId x = bench.Input("x", {9, 7});
  const ValueId y = bench.Apply(std::make_shared<Linear>(),
                                {x, bench.Parameter("w1", {5, 7}), bench.Parameter("b1", {5})});
  const ValueId r = bench.Apply(std::make_shared<Relu>(), {y});
  const ValueId z = bench.Apply(std::make_shared<Linear>(),
                                {r, bench.Parameter("w2", {3, 5}), bench.Parameter("b2", {3})});
  const ValueId t = bench.Input("t", {9, 3});
  return {y, r, bench.Apply(std::make_shared<MeanSquaredError>(), {z, t})};
}

TEST(SimplifyTest, FoldsBiasAndReluIntoProduct) {
  GraphBench bench;
  bench.PrepareTraining(RecordTwoLayers(bench).loss);
  const std::vector<std::string> kernels = Kernels(bench.executor().graph());
  EXPECT_THAT(kernels, Contains("linear+relu").Times(1));
  EXPECT_THAT(kernels, Contains("linear").Times(1));
  EXPECT_THAT(kernels, Not(Contains("relu")));
}

TEST(SimplifyTest, DoesNotChangeResults) {
  GraphBench simple;
  simple.PrepareTraining(RecordTwoLayers(simple).loss);
  GraphBench plain;
  plain.PrepareTraining(RecordTwoLayers(plain).loss, {.simplify = false});
  EXPECT_EQ(Kernels(plain.executor().graph()).size(),
            Kernels(simple.executor().graph()).size() + 1);
  simple.Run();
  plain.Run();
  EXPECT_EQ(simple.objective(), plain.objective());
  EXPECT_EQ(RelativeError(simple.gradients(), plain.gradients()), 0);
}

TEST(SimplifyTest, DoesNotFoldValuesWithOtherReaders) {
  {  // the value before ReLU is an output
    GraphBench bench;
    const Recorded recorded = RecordTwoLayers(bench);
    bench.graph().MarkOutput(recorded.y);
    bench.PrepareTraining(recorded.loss);
    EXPECT_EQ(Kernels(bench.executor().graph())[0], "linear");
    EXPECT_EQ(Kernels(bench.executor().graph())[1], "relu");
  }
  {  // the value before ReLU has a second user
    GraphBench bench;
    const ValueId x = bench.Input("x", {9, 7});
    const ValueId y = bench.Apply(std::make_shared<Linear>(), {x, bench.Parameter("w", {5, 7})});
    const ValueId r = bench.Apply(std::make_shared<Relu>(), {y});
    const ValueId loss = bench.Apply(std::make_shared<MeanSquaredError>(), {r, y});
    bench.graph().MarkOutput(loss);
    bench.Prepare({});
    EXPECT_THAT(Kernels(bench.executor().graph()),
                ElementsAre("linear", "relu", "mean_squared_error"));
  }
  {  // a second ReLU stays: the folded function has one already
    GraphBench bench;
    const ValueId x = bench.Input("x", {9, 7});
    ValueId y = bench.Apply(std::make_shared<Linear>(), {x, bench.Parameter("w", {5, 7})});
    y = bench.Apply(std::make_shared<Relu>(), {y});
    y = bench.Apply(std::make_shared<Relu>(), {y});
    bench.graph().MarkOutput(y);
    bench.Prepare({});
    EXPECT_THAT(Kernels(bench.executor().graph()), ElementsAre("linear+relu", "relu"));
  }
}

TEST(SimplifyTest, DropsUnusedNodes) {
  const auto record = [](GraphBench& bench, bool keep_ranks) {
    const ValueId x = bench.Input("x", {9, 7});
    const ValueId labels = bench.Labels(9, 5);
    const ValueId y = bench.Apply(std::make_shared<Linear>(), {x, bench.Parameter("w", {5, 7})});
    const ValueId r = bench.Apply(std::make_shared<Relu>(), {y});
    // Dead, and a second user of y, which must not hinder the folding of r.
    bench.Apply(std::make_shared<Relu>(), {bench.Apply(std::make_shared<Relu>(), {y})});
    const ValueId ranks = bench.Apply(std::make_shared<LabelRanks>(), {r, labels});
    if (keep_ranks) bench.graph().MarkOutput(ranks);
    bench.PrepareTraining(bench.Apply(std::make_shared<TokenCrossEntropy>(), {r, labels}));
  };
  GraphBench without;
  record(without, false);
  EXPECT_THAT(Kernels(without.executor().graph()),
              AllOf(Contains("linear+relu"), Not(Contains("relu")), Not(Contains("label_ranks"))));
  GraphBench with;
  record(with, true);
  EXPECT_THAT(Kernels(with.executor().graph()),
              AllOf(Contains("linear+relu"), Not(Contains("relu")), Contains("label_ranks")));
}

// What a rank without samples runs: the collectives, and zeros instead of all sums over rows.
TEST(SimplifyTest, KeepsZerosAndCollectivesWithoutRows) {
  GraphBench bench;
  const ValueId w = bench.Apply(std::make_shared<AllReduceSum>(), {bench.Parameter("w", {3, 7})});
  const ValueId b = bench.Parameter("b", {3});
  const ValueId z = bench.Apply(std::make_shared<Linear>(), {bench.Input("x", {0, 7}), w, b});
  bench.RecordTraining(
      bench.Apply(std::make_shared<MeanSquaredError>(), {z, bench.Input("t", {0, 3})}));
  Simplify(bench.graph());
  ReplaceEmptyNodes(bench.graph());
  EXPECT_TRUE(HasCollectives(bench.graph()));
  EXPECT_THAT(Kernels(bench.graph()),
              UnorderedElementsAre("all_reduce_sum", "zeros", "zeros", "zeros", "all_reduce_sum",
                                   "accumulate"));
}

}  // namespace
}  // namespace gaccd
