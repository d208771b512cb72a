#include "daemon/autograd/passes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>

#include "daemon/autograd/function.h"
#include "daemon/autograd/memory_plan.h"
#include "daemon/ops/collective/collective.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/activations.h"
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

// Runs graphs on numbers, each a hash of how its value is computed, in the planned memory: the
// results show what a recomputed block reads, and from where.

namespace {

enum class StepKind { kPlain, kView, kInPlace, kCollective, kUpdateSum };

class NumberedStep : public Function {
 public:
  NumberedStep(StepKind kind, std::uint64_t number, std::vector<ValueSpec> outputs)
      : kind_(kind), number_(number), outputs_(std::move(outputs)) {}
  [[nodiscard]] std::string_view name() const override { return "step"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec>) const override { return outputs_; }
  [[nodiscard]] bool is_view() const override { return kind_ == StepKind::kView; }
  [[nodiscard]] bool can_run_in_place() const override { return kind_ == StepKind::kInPlace; }
  [[nodiscard]] bool is_collective() const override { return kind_ == StepKind::kCollective; }
  [[nodiscard]] bool is_update_sum() const override { return kind_ == StepKind::kUpdateSum; }
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }
  [[nodiscard]] std::uint64_t number() const { return number_; }

 private:
  StepKind kind_;
  std::uint64_t number_;
  std::vector<ValueSpec> outputs_;
};

std::uint64_t MixContent(std::uint64_t hash, std::uint64_t word) {
  hash = (hash ^ word) * 0x9E3779B97F4A7C15U;
  return hash ^ (hash >> 29);
}

struct Draws {
  std::mt19937_64 engine;
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }
};

struct RecordedTraining {
  Graph graph;
  std::vector<ValueId> ends;
  ValueId seed = 0;
};

constexpr std::int64_t kTargets = 3;
constexpr std::int64_t kMicroSteps = 2;
ValueSpec TargetSpec() { return {{10}, DType::kF32}; }

class RandomTraining {
 public:
  explicit RandomTraining(std::uint64_t seed) : dice_{std::mt19937_64(seed)} {
    for (int i = 0; i < 2; ++i) values_.push_back(recorded_.graph.AddInput("x", RandomSpec()));
    for (std::int64_t i = 0; i < kTargets; ++i) {
      parameters_.push_back(recorded_.graph.AddParameter("w", {10}, static_cast<std::size_t>(i)));
      values_.push_back(parameters_.back());
    }
    const std::int64_t forward = dice_(3, 30);
    for (std::int64_t n = 0; n < forward; ++n) AddForward();
    forward_ = values_;
    recorded_.seed = recorded_.graph.AddInput("seed", {{1}, DType::kF32});
    values_ = {recorded_.seed};
    AddBackward();
    const std::int64_t backward = dice_(3, 30);
    for (std::int64_t n = 0; n < backward; ++n) AddBackward();
  }

  RecordedTraining Take() && { return std::move(recorded_); }

 private:
  ValueSpec RandomSpec() { return {{dice_(1, 100)}, DType::kF32}; }
  ValueId Pick(const std::vector<ValueId>& values, bool recent) {
    const std::int64_t last = std::ssize(values) - 1;
    return values[static_cast<std::size_t>(recent ? dice_(std::max<std::int64_t>(0, last - 2), last)
                                                  : dice_(0, last))];
  }

  void AddForward() {
    Graph& graph = recorded_.graph;
    std::vector<ValueId> inputs;
    for (std::int64_t i = dice_(1, 3); i > 0; --i) inputs.push_back(Pick(values_, dice_(0, 4) > 0));
    if (dice_(0, 9) == 0) {  // as the running statistics of a micro-batch
      const auto step =
          std::make_shared<NumberedStep>(StepKind::kPlain, ++number_, std::vector{TargetSpec()});
      ASSERT_OK(graph.ApplyToGradients(step, inputs, {Pick(parameters_, false)}).status());
      return;
    }
    const ValueSpec first = graph.value(inputs[0]).spec;
    const auto kind = static_cast<StepKind>(std::max<std::int64_t>(0, dice_(-4, 4)));
    std::vector<ValueSpec> outputs = {first};
    if (kind == StepKind::kPlain) outputs = {RandomSpec()};
    if (kind == StepKind::kPlain && dice_(0, 2) == 0) outputs.push_back(RandomSpec());
    const auto made =
        ValueOrThrow(graph.Apply(std::make_shared<NumberedStep>(kind, ++number_, outputs), inputs));
    values_.insert(values_.end(), made.begin(), made.end());
    if (dice_(0, 3) == 0) recorded_.ends.push_back(made[0]);
    if (dice_(0, 14) == 0) graph.MarkOutput(made[0]);
  }

  void AddBackward() {
    Graph& graph = recorded_.graph;
    std::vector<ValueId> inputs = {Pick(values_, true)};
    for (std::int64_t i = dice_(0, 2); i > 0; --i) inputs.push_back(Pick(forward_, false));
    const auto spec = dice_(0, 1) == 0 ? RandomSpec() : TargetSpec();
    const auto step =
        std::make_shared<NumberedStep>(StepKind::kPlain, ++number_, std::vector{spec});
    std::optional<ValueId> target;
    if (spec == TargetSpec()) target = Pick(parameters_, false);
    const auto made = ValueOrThrow(graph.ApplyToGradients(step, inputs, {target}));
    if (!target) values_.push_back(made[0]);
  }

  Draws dice_;
  RecordedTraining recorded_;
  std::vector<ValueId> values_;
  std::vector<ValueId> parameters_;
  std::vector<ValueId> forward_;
  std::uint64_t number_ = 0;
};

// Runs a graph in planned memory; of every 64 bytes it is known what they hold. At a sum over the
// update other micro-batches write over all that is not kept.
class ArenaMachine {
 public:
  explicit ArenaMachine(const Graph& graph) : graph_(graph), plan_(PlanMemory(graph, kMicroSteps)) {
    shared_ = static_cast<std::size_t>(plan_.arena_bytes / MemoryPlan::kAlignment);
    memory_.resize(shared_ + static_cast<std::size_t>(plan_.kept_bytes / MemoryPlan::kAlignment));
    for (const Node& node : graph.nodes()) Run(node);
  }

  // What has been added to the gradient of each parameter, in whatever order.
  [[nodiscard]] const std::map<std::size_t, std::uint64_t>& gradients() const { return gradients_; }
  [[nodiscard]] std::vector<std::uint64_t> Outputs() const {
    std::vector<std::uint64_t> outputs;
    for (std::size_t v = 0; v < graph_.values().size(); ++v) {
      if (graph_.values()[v].kind == ValueKind::kOutput) {
        outputs.push_back(Read(static_cast<ValueId>(v)));
      }
    }
    return outputs;
  }
  [[nodiscard]] std::int64_t bytes() const { return plan_.arena_bytes + plan_.kept_bytes; }

 private:
  [[nodiscard]] std::size_t FirstBlock(ValueId value) const {
    const std::size_t storage = Index(plan_.storage[Index(value)]);
    return static_cast<std::size_t>(plan_.offset[storage] / MemoryPlan::kAlignment) +
           (plan_.kept[storage] ? shared_ : 0);
  }
  [[nodiscard]] std::size_t BlockCount(ValueId value) const {
    return static_cast<std::size_t>(
        (graph_.value(value).spec.bytes() + MemoryPlan::kAlignment - 1) / MemoryPlan::kAlignment);
  }
  [[nodiscard]] bool IsPlanned(ValueId value) const {
    return plan_.offset[Index(plan_.storage[Index(value)])] != MemoryPlan::kNone;
  }
  // All of its bytes: another value in some of them makes it another one.
  [[nodiscard]] std::uint64_t Read(ValueId value) const {
    const ValueId storage = plan_.storage[Index(value)];
    if (!IsPlanned(value)) return static_cast<std::uint64_t>(storage);
    std::uint64_t content = memory_[FirstBlock(value)];
    for (std::size_t i = 0; i < BlockCount(value); ++i) {
      if (memory_[FirstBlock(value) + i] != content) return ~content;
    }
    return content;
  }

  void Run(const Node& node) {
    if (node.function->is_view()) return;
    std::uint64_t content = dynamic_cast<const NumberedStep&>(*node.function).number();
    for (const ValueId input : node.inputs) content = MixContent(content, Read(input));
    if (node.function->is_update_sum()) {
      for (std::size_t i = 0; i < shared_; ++i) memory_[i] = ++garbage_;
    }
    for (std::size_t j = 0; j < node.outputs.size(); ++j) {
      const Value& value = graph_.value(node.outputs[j]);
      if (value.kind == ValueKind::kParameterGradient) {
        gradients_[value.parameter] += MixContent(content, j);
        continue;
      }
      std::fill_n(memory_.begin() + static_cast<std::ptrdiff_t>(FirstBlock(node.outputs[j])),
                  BlockCount(node.outputs[j]), MixContent(content, j));
    }
  }

  const Graph& graph_;
  MemoryPlan plan_;
  std::size_t shared_ = 0;
  std::vector<std::uint64_t> memory_;  // what all micro-batches share, then what is kept
  std::uint64_t garbage_ = 0;
  std::map<std::size_t, std::uint64_t> gradients_;
};

std::int64_t CountThatRunOnce(const Graph& graph) {
  return std::ranges::count_if(graph.nodes(), [&](const Node& node) {
    return node.function->is_collective() || node.function->is_update_sum() ||
           std::ranges::any_of(node.outputs, [&](ValueId output) {
             return graph.value(output).kind == ValueKind::kParameterGradient;
           });
  });
}

TEST(RecomputeTest, RandomGraphsAreSameWithRecompute) {
  std::int64_t more_nodes = 0;
  std::int64_t bytes = 0;
  std::int64_t all_kept = 0;
  for (std::uint64_t seed = 0; seed < 1000; ++seed) {
    SCOPED_TRACE(seed);
    RecordedTraining recorded = RandomTraining(seed).Take();
    if (FindBlocks(recorded.graph, recorded.ends, recorded.seed).empty()) continue;
    Graph graph = recorded.graph;
    ASSERT_OK(RecomputeBlocks(recorded.ends, recorded.seed, kMicroSteps, &graph));
    const ArenaMachine expected(recorded.graph);
    const ArenaMachine found(graph);
    ASSERT_EQ(found.gradients(), expected.gradients());
    ASSERT_EQ(found.Outputs(), expected.Outputs());
    ASSERT_EQ(CountThatRunOnce(graph), CountThatRunOnce(recorded.graph));
    more_nodes += std::ssize(graph.nodes()) - std::ssize(recorded.graph.nodes());
    bytes += found.bytes();
    all_kept += expected.bytes();
  }
  EXPECT_GT(more_nodes, 1000);
  EXPECT_LT(bytes, all_kept);
}

// y = f(f(...f(x))), and in the backward a gradient from each y and the gradient before.
RecordedTraining RecordChain(int length) {
  RecordedTraining recorded;
  Graph& graph = recorded.graph;
  const std::vector<ValueSpec> one = {{{16}, DType::kF32}};
  const ValueId parameter = graph.AddParameter("w", {10}, 0);
  std::uint64_t number = 0;
  const auto apply = [&](std::vector<ValueId> inputs) {
    const auto step = std::make_shared<NumberedStep>(StepKind::kPlain, ++number, one);
    return (*graph.Apply(step, std::move(inputs)))[0];
  };
  std::vector<ValueId> values = {graph.AddInput("x", one[0])};
  for (int i = 0; i < length; ++i) {
    values.push_back(apply({values.back()}));
    recorded.ends.push_back(values.back());
  }
  recorded.seed = graph.AddInput("seed", one[0]);
  ValueId gradient = recorded.seed;
  for (; values.size() > 1; values.pop_back()) gradient = apply({gradient, values.back()});
  const auto last =
      std::make_shared<NumberedStep>(StepKind::kPlain, ++number, std::vector{TargetSpec()});
  EXPECT_OK(graph.ApplyToGradients(last, {gradient}, {parameter}).status());
  return recorded;
}

// 36 values of 64 bytes: about 6 are kept, and 6 of a block. The gradient takes two more.
TEST(RecomputeTest, CutsChainIntoAboutSqrtParts) {
  RecordedTraining chain = RecordChain(36);
  EXPECT_EQ(PlanMemory(chain.graph).arena_bytes, 37 * 64);
  ASSERT_OK(RecomputeBlocks(chain.ends, chain.seed, kMicroSteps, &chain.graph));
  EXPECT_LE(PlanMemory(chain.graph).arena_bytes, 15 * 64);
}

TEST(RecomputeTest, RefusesGraphWithoutCut) {
  RecordedTraining chain = RecordChain(4);
  EXPECT_THAT(RecomputeBlocks({}, chain.seed, kMicroSteps, &chain.graph),
              IsError(ErrorKind::kConfig, "recompute: BLOCKS"));
  const std::vector<ValueId> inputs = {0};  // x itself
  EXPECT_THAT(RecomputeBlocks(inputs, chain.seed, kMicroSteps, &chain.graph),
              IsError(ErrorKind::kConfig, "found no such place"));
}

}  // namespace

}  // namespace gaccd
