// The plan is checked by what it is for: a run. Random graphs are replayed over a model of the
// arena that remembers which value wrote every byte last, and every read must find its own value.
#include "daemon/autograd/memory_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/ops/pointwise/activations.h"
#include "tests/support/graph_bench.h"

namespace gaccd {
namespace {

enum class Kind { kPlain, kView, kInPlace };

class Fake : public Function {
 public:
  Fake(Kind kind, std::vector<ValueSpec> outputs) : kind_(kind), outputs_(std::move(outputs)) {}
  [[nodiscard]] std::string_view name() const override { return "fake"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec>) const override { return outputs_; }
  [[nodiscard]] bool is_view() const override { return kind_ == Kind::kView; }
  [[nodiscard]] bool can_run_in_place() const override { return kind_ == Kind::kInPlace; }

 private:
  Kind kind_;
  std::vector<ValueSpec> outputs_;
};

struct Dice {
  std::mt19937_64 engine;
  std::int64_t operator()(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(engine);
  }
};

ValueSpec RandomSpec(Dice& dice) {
  return {{dice(0, 3) == 0 ? dice(0, 1) : dice(1, 100)}, DType::kF32};  // some of 0 elements
}

Graph RandomGraph(std::uint64_t seed) {
  Dice dice{std::mt19937_64(seed)};
  Graph graph;
  std::vector<ValueId> values;
  for (int i = 0; i < 2; ++i) values.push_back(graph.AddInput("input", RandomSpec(dice)));
  values.push_back(graph.AddParameter("parameter", {10}, 0));
  const std::int64_t nodes = dice(1, 40);
  for (std::int64_t n = 0; n < nodes; ++n) {
    std::vector<ValueId> inputs;
    const std::int64_t arity = dice(1, 3);
    for (std::int64_t i = 0; i < arity; ++i) {
      // Mostly recent values, so that chains come about.
      const std::int64_t last = std::ssize(values) - 1;
      inputs.push_back(values[static_cast<std::size_t>(
          dice(0, 2) == 0 ? dice(0, last) : dice(std::max<std::int64_t>(0, last - 2), last))]);
    }
    const ValueSpec first = graph.value(inputs[0]).spec;
    const auto kind = static_cast<Kind>(dice(0, 2));
    std::vector<ValueSpec> outputs = {first};
    if (kind == Kind::kPlain || dice(0, 4) == 0) outputs = {RandomSpec(dice)};
    if (kind == Kind::kView) outputs = {first};
    if (kind == Kind::kPlain && dice(0, 1) == 0) outputs.push_back(RandomSpec(dice));
    const auto made = *graph.Apply(std::make_shared<Fake>(kind, outputs), inputs);
    values.insert(values.end(), made.begin(), made.end());
  }
  for (const ValueId value : values) {
    if (graph.value(value).kind == ValueKind::kActivation && dice(0, 9) == 0) {
      graph.MarkOutput(value);
    }
  }
  return graph;
}

std::size_t Index(ValueId id) { return static_cast<std::size_t>(id); }

// Memory in which every 64-byte block knows whose content it holds.
class TaggedMemory {
 public:
  TaggedMemory(const Graph& graph, const MemoryPlan& plan)
      : graph_(graph), plan_(plan), tags_(graph.values().size()) {
    for (std::size_t v = 0; v < tags_.size(); ++v) tags_[v] = static_cast<ValueId>(v);
    blocks_.assign(static_cast<std::size_t>(plan.arena_bytes / MemoryPlan::kAlignment), -1);
  }

  // The view holds what its source holds.
  void Alias(ValueId view, ValueId source) { tags_[Index(view)] = tags_[Index(source)]; }
  void Write(ValueId value) {
    if (!InArena(value)) return;
    for (ValueId& block : StorageBlocks(value)) block = tags_[Index(value)];
  }
  [[nodiscard]] bool Holds(ValueId value) {
    if (!InArena(value)) return true;
    const auto blocks = StorageBlocks(value);
    return std::all_of(blocks.begin(), blocks.end(),
                       [&](ValueId block) { return block == tags_[Index(value)]; });
  }
  [[nodiscard]] bool InArena(ValueId value) const {
    return plan_.offset[Index(plan_.storage[Index(value)])] != MemoryPlan::kNone;
  }

 private:
  std::span<ValueId> StorageBlocks(ValueId value) {
    const std::int64_t offset = plan_.offset[Index(plan_.storage[Index(value)])];
    const std::int64_t bytes = graph_.value(value).spec.bytes();
    return std::span<ValueId>(blocks_).subspan(
        static_cast<std::size_t>(offset / MemoryPlan::kAlignment),
        static_cast<std::size_t>((bytes + MemoryPlan::kAlignment - 1) / MemoryPlan::kAlignment));
  }

  const Graph& graph_;
  const MemoryPlan& plan_;
  std::vector<ValueId> tags_;  // by value: the value whose content it is
  std::vector<ValueId> blocks_;
};

// Replays the graph; returns how many nodes ran in place.
int Replay(const Graph& graph, const MemoryPlan& plan) {
  TaggedMemory memory(graph, plan);
  int in_place = 0;
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) EXPECT_TRUE(memory.Holds(input)) << "read " << input;
    if (node.function->is_view()) {
      EXPECT_EQ(plan.storage[Index(node.outputs[0])], plan.storage[Index(node.inputs[0])]);
      memory.Alias(node.outputs[0], node.inputs[0]);
      continue;
    }
    for (const ValueId output : node.outputs) {
      EXPECT_TRUE(memory.InArena(output));
      memory.Write(output);
    }
    for (const ValueId output : node.outputs) EXPECT_TRUE(memory.Holds(output));
    const ValueId reused = plan.storage[Index(node.outputs[0])];
    int written_over = 0;
    for (const ValueId input : node.inputs) {
      if (memory.Holds(input)) continue;
      ++in_place;
      EXPECT_EQ(++written_over, 1) << "an input with the same memory may be read later";
      EXPECT_TRUE(node.function->can_run_in_place()) << "input " << input << " written over";
      EXPECT_EQ(plan.storage[Index(input)], reused);
      EXPECT_EQ(plan.storage[Index(node.inputs[0])], reused) << "only input 0 may be written over";
    }
  }
  for (std::size_t v = 0; v < graph.values().size(); ++v) {
    if (graph.values()[v].kind != ValueKind::kOutput) continue;
    EXPECT_TRUE(memory.Holds(static_cast<ValueId>(v))) << "output " << v << " lost";
  }
  return in_place;
}

std::int64_t SumOfAll(const Graph& graph) {
  std::int64_t sum = 0;
  for (const Value& value : graph.values()) {
    if (value.kind == ValueKind::kInput || value.kind == ValueKind::kParameter) continue;
    sum += (value.spec.bytes() + MemoryPlan::kAlignment - 1) / MemoryPlan::kAlignment *
           MemoryPlan::kAlignment;
  }
  return sum;
}

TEST(MemoryPlanTest, EveryReadFindsItsValueInRandomGraphs) {
  int in_place = 0;
  std::int64_t planned = 0;
  std::int64_t unshared = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = RandomGraph(seed);
    const MemoryPlan plan = PlanMemory(graph);
    ASSERT_EQ(plan.arena_bytes % MemoryPlan::kAlignment, 0);
    for (const std::int64_t offset : plan.offset) {
      ASSERT_TRUE(offset == MemoryPlan::kNone || offset % MemoryPlan::kAlignment == 0);
    }
    ASSERT_LE(plan.arena_bytes, SumOfAll(graph));
    in_place += Replay(graph, plan);
    if (HasFailure()) return;  // one seed says enough
    planned += plan.arena_bytes;
    unshared += SumOfAll(graph);
  }
  // Sharing happens at all: without it this test would prove nothing.
  EXPECT_GT(in_place, 1000);
  EXPECT_LT(planned, unshared * 6 / 10);
}

TEST(MemoryPlanTest, ChainNeedsTwoValues) {
  Graph graph;
  const ValueSpec spec{{64}, DType::kF32};
  ValueId value = graph.AddInput("x", spec);
  for (int i = 0; i < 20; ++i) {
    value = (*graph.Apply(std::make_shared<Fake>(Kind::kPlain, std::vector{spec}), {value}))[0];
  }
  graph.MarkOutput(value);
  EXPECT_EQ(PlanMemory(graph).arena_bytes, 2 * spec.bytes());
}

// y = f(x), s the sum over the update of what g(y) adds, z = h(y, s): y lives on across the cut.
TEST(MemoryPlanTest, KeepsValuesAcrossUpdateSum) {
  Graph graph;
  const ValueSpec spec{{64}, DType::kF32};
  const ValueSpec sums{{4}, DType::kF64};
  const auto apply = [&](std::shared_ptr<const Function> function, std::vector<ValueId> inputs) {
    return (*graph.Apply(std::move(function), std::move(inputs)))[0];
  };
  const auto plain = [](const ValueSpec& output) {
    return std::make_shared<Fake>(Kind::kPlain, std::vector{output});
  };
  const ValueId y = apply(plain(spec), {graph.AddInput("x", spec)});
  const ValueId own = apply(plain(sums), {y});
  const ValueId all = apply(std::make_shared<UpdateSum>(), {own});
  graph.MarkOutput(apply(plain(spec), {y, all}));
  const MemoryPlan plan = PlanMemory(graph, 2);
  EXPECT_EQ(plan.kept_bytes, spec.bytes());
  EXPECT_TRUE(plan.kept[Index(y)]);
  EXPECT_FALSE(plan.kept[Index(own)]) << "it is taken where the graph is cut";
  EXPECT_FALSE(plan.kept[Index(all)]);
  EXPECT_EQ(PlanMemory(graph).kept_bytes, 0);
  EXPECT_EQ(PlanMemory(graph).arena_bytes, plan.kept_bytes + plan.arena_bytes);
}

TEST(MemoryPlanTest, InPlaceChainNeedsOneValue) {
  Graph graph;
  const ValueSpec spec{{64}, DType::kF32};
  ValueId value = graph.AddInput("x", spec);
  std::vector<ValueId> made;
  for (int i = 0; i < 20; ++i) {
    const auto kind = i % 3 == 2 ? Kind::kView : Kind::kInPlace;
    value = (*graph.Apply(std::make_shared<Fake>(kind, std::vector{spec}), {value}))[0];
    made.push_back(value);
  }
  const MemoryPlan plan = PlanMemory(graph);
  EXPECT_EQ(plan.arena_bytes, spec.bytes());
  for (const ValueId id : made) EXPECT_EQ(plan.storage[Index(id)], made[0]);
}

TEST(MemoryPlanTest, DoesNotOverwriteViewOutput) {
  Graph graph;
  const ValueSpec spec{{64}, DType::kF32};
  const ValueId x = graph.AddInput("x", spec);
  const auto apply = [&](Kind kind, ValueId input) {
    return (*graph.Apply(std::make_shared<Fake>(kind, std::vector{spec}), {input}))[0];
  };
  const ValueId a = apply(Kind::kPlain, x);
  const ValueId view = apply(Kind::kView, a);
  apply(Kind::kInPlace, a);
  graph.MarkOutput(view);
  EXPECT_EQ(Replay(graph, PlanMemory(graph)), 0);
}

// Real kernels over shared memory against the same sums in memory of their own. Whole numbers, so
// that the results are equal to the last bit.
TEST(MemoryPlanTest, ResultsAreSameWithoutSharing) {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice{std::mt19937_64(seed)};
    GraphBench bench;
    std::vector<ValueId> values;
    std::vector<std::vector<float>> expected;
    for (int i = 0; i < 3; ++i) {
      values.push_back(bench.Parameter(StrCat("p", i), {6, 4, 5}));
      for (float& p : bench.parameter(StrCat("p", i))) p = static_cast<float>(dice(-9, 9));
      const auto content = bench.parameter(StrCat("p", i));
      expected.emplace_back(content.begin(), content.end());
    }
    // Every value gets a flat twin, so that views are among the operands.
    const auto pick = [&] { return static_cast<std::size_t>(dice(0, std::ssize(values) - 1)); };
    for (int n = 0; n < 24; ++n) {
      const std::size_t a = pick();
      const std::size_t b = pick();
      std::vector<float> result = expected[a];
      ValueId made = 0;
      const bool same_shape =
          bench.graph().value(values[a]).spec == bench.graph().value(values[b]).spec;
      if (dice(0, 3) == 0) {
        made = bench.Rows(values[a]);
      } else if (same_shape && dice(0, 1) == 0) {
        made = bench.Apply(std::make_shared<Add>(), {values[a], values[b]});
        for (std::size_t i = 0; i < result.size(); ++i) result[i] += expected[b][i];
      } else {
        made = bench.Apply(std::make_shared<Relu>(), {values[a]});
        for (float& r : result) r = std::max(r, 0.0F);
      }
      values.push_back(made);
      expected.push_back(std::move(result));
    }
    std::vector<std::size_t> outputs = {values.size() - 1};
    for (int i = 0; i < 3; ++i) outputs.push_back(static_cast<std::size_t>(dice(3, 26)));
    for (const std::size_t output : outputs) bench.graph().MarkOutput(values[output]);
    bench.Prepare({});
    bench.Run();
    for (const std::size_t output : outputs) {
      const auto* found = bench.executor().Output<float>(values[output]);
      ASSERT_TRUE(std::equal(expected[output].begin(), expected[output].end(), found)) << output;
    }
  }
}

}  // namespace
}  // namespace gaccd
