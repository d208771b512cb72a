#include "daemon/autograd/passes.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "daemon/autograd/add.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/memory_plan.h"

namespace gaccd {

namespace {

bool IsResult(const Value& value) {
  return value.kind == ValueKind::kParameterGradient || value.kind == ValueKind::kOutput;
}

std::vector<int> CountUsers(const Graph& graph) {
  std::vector<int> users(graph.values().size());
  for (const Node& node : graph.nodes()) {
    for (const ValueId input : node.inputs) ++users[Index(input)];
  }
  return users;
}

// Replaces (a -> b), (b -> c) by (a -> c) if b has no other user and is not an output.
std::vector<Node> Fold(const Graph& graph) {
  const std::vector<int> users = CountUsers(graph);
  std::vector<Node> nodes;
  std::vector<std::size_t> maker(graph.values().size());  // index in `nodes`
  for (const Node& node : graph.nodes()) {
    if (node.inputs.size() == 1 && node.outputs.size() == 1) {
      const ValueId middle = node.inputs[0];
      const Value& value = graph.value(middle);
      if (value.kind == ValueKind::kActivation && users[Index(middle)] == 1) {
        Node& producer = nodes[maker[Index(middle)]];
        auto folded =
            producer.outputs.size() == 1 ? producer.function->FoldWith(*node.function) : nullptr;
        if (folded != nullptr) {
          producer.function = std::move(folded);
          producer.outputs = node.outputs;
          maker[Index(node.outputs[0])] = maker[Index(middle)];
          continue;
        }
      }
    }
    for (const ValueId output : node.outputs) maker[Index(output)] = nodes.size();
    nodes.push_back(node);
  }
  return nodes;
}

std::vector<Node> Needed(const Graph& graph) {
  std::vector<bool> needed(graph.values().size());
  std::vector<Node> kept;
  for (std::size_t i = graph.nodes().size(); i-- > 0;) {
    const Node& node = graph.nodes()[i];
    bool live = false;
    for (const ValueId output : node.outputs) {
      live = live || needed[Index(output)] || IsResult(graph.value(output));
    }
    if (!live) continue;
    for (const ValueId input : node.inputs) needed[Index(input)] = true;
    kept.push_back(node);
  }
  return {kept.rbegin(), kept.rend()};
}

bool IsEmpty(const Graph& graph, ValueId id) { return Elements(graph.value(id).spec.shape) == 0; }

}  // namespace

void DropUnused(Graph& graph) { graph.ReplaceNodes(Needed(graph)); }

void Simplify(Graph& graph) {
  DropUnused(graph);  // first, so that unused nodes do not prevent folding
  graph.ReplaceNodes(Fold(graph));
}

void ReplaceEmptyNodes(Graph& graph) {
  const auto is_empty = [&](ValueId id) { return IsEmpty(graph, id); };
  std::vector<Node> nodes;
  for (const Node& node : graph.nodes()) {
    const bool has_empty =
        std::ranges::any_of(node.inputs, is_empty) || std::ranges::any_of(node.outputs, is_empty);
    if (!has_empty || node.function->is_collective() || node.function->is_view()) {
      nodes.push_back(node);
    } else if (!std::ranges::all_of(node.outputs, is_empty)) {
      std::vector<ValueSpec> specs;
      for (const ValueId output : node.outputs) specs.push_back(graph.value(output).spec);
      nodes.push_back({std::make_shared<Zeros>(std::move(specs)), {}, node.outputs});
    }
  }
  graph.ReplaceNodes(std::move(nodes));
}

bool HasCollectives(const Graph& graph) {
  return std::ranges::any_of(graph.nodes(),
                             [](const Node& node) { return node.function->is_collective(); });
}

std::size_t CountUpdateSums(const Graph& graph) {
  return static_cast<std::size_t>(std::ranges::count_if(
      graph.nodes(), [](const Node& node) { return node.function->is_update_sum(); }));
}

namespace {

constexpr std::size_t kNoBlock = static_cast<std::size_t>(-1);

// The first node that reads the seed; all nodes before it are the forward.
std::size_t BackwardBegin(const Graph& graph, ValueId seed) {
  const auto reads = [seed](const Node& node) { return std::ranges::count(node.inputs, seed) > 0; };
  return static_cast<std::size_t>(std::ranges::find_if(graph.nodes(), reads) -
                                  graph.nodes().begin());
}

class Pass {
 public:
  // ends: indices of nodes, ascending.
  Pass(const Graph& graph, std::span<const std::size_t> ends, ValueId seed)
      : graph_(graph),
        backward_(BackwardBegin(graph, seed)),
        block_(graph.values().size(), kNoBlock),
        memory_(graph.values().size()),
        kept_(graph.values().size()),
        copy_of_(graph.values().size()) {
    std::iota(memory_.begin(), memory_.end(), 0);
    FindValueBlocks(ends);
    KeepValuesReadElsewhere();
    FindWanted();
  }

  Graph Run() && {
    std::vector<Node> nodes(graph_.nodes().begin(), graph_.nodes().begin() + Signed(backward_));
    for (std::size_t i = backward_; i < graph_.nodes().size(); ++i) {
      Node node = graph_.nodes()[i];
      for (const ValueId input : node.inputs) {
        if (IsDropped(input)) CopyBlock(block_[Index(input)], &nodes);
      }
      UseCopies(&node);
      nodes.push_back(std::move(node));
    }
    graph_.ReplaceNodes(std::move(nodes));
    return std::move(graph_);
  }

 private:
  static std::ptrdiff_t Signed(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }

  // Whether a node may run twice.
  [[nodiscard]] bool MayRepeat(const Node& node) const {
    const auto is_activation = [this](ValueId id) {
      return graph_.value(id).kind == ValueKind::kActivation;
    };
    return !node.function->is_collective() && !node.function->is_update_sum() &&
           std::ranges::all_of(node.outputs, is_activation);
  }

  void FindValueBlocks(std::span<const std::size_t> ends) {
    std::size_t begin = 0;
    for (const std::size_t end : ends) {
      blocks_.push_back({.begin = begin, .end = end + 1});
      for (; begin <= end; ++begin) {
        const Node& node = graph_.nodes()[begin];
        for (const ValueId output : node.outputs) block_[Index(output)] = blocks_.size() - 1;
      }
    }
    for (const Node& node : graph_.nodes()) {
      if (node.function->is_view())
        memory_[Index(node.outputs[0])] = memory_[Index(node.inputs[0])];
    }
  }

  // Views share the memory of kept values.
  void KeepValuesReadElsewhere() {
    for (std::size_t i = 0; i < backward_; ++i) {
      const Node& node = graph_.nodes()[i];
      for (const ValueId input : node.inputs) {
        if (block_[Index(input)] != block_[Index(node.outputs[0])]) Keep(input);
      }
      if (MayRepeat(node)) continue;
      for (const ValueId output : node.outputs) Keep(output);
    }
  }
  void Keep(ValueId value) { kept_[Index(memory_[Index(value)])] = true; }

  // Computed in a block and not kept.
  [[nodiscard]] bool IsDropped(ValueId value) const {
    return block_[Index(value)] != kNoBlock && !kept_[Index(memory_[Index(value)])];
  }

  // Finds the values that the backward reads, and everything they are computed from.
  void FindWanted() {
    wanted_.resize(graph_.values().size());
    for (std::size_t i = graph_.nodes().size(); i-- > 0;) {
      const Node& node = graph_.nodes()[i];
      const bool repeats = std::ranges::any_of(
          node.outputs, [this](ValueId output) { return wanted_[Index(output)]; });
      if (i < backward_ && !repeats) continue;
      for (const ValueId input : node.inputs) {
        if (IsDropped(input)) wanted_[Index(input)] = true;
      }
    }
  }

  void CopyBlock(std::size_t number, std::vector<Node>* nodes) {
    Block& block = blocks_[number];
    if (std::exchange(block.copied, true)) return;
    for (std::size_t i = block.begin; i < block.end; ++i) {
      Node node = graph_.nodes()[i];
      if (!std::ranges::any_of(node.outputs,
                               [this](ValueId output) { return wanted_[Index(output)]; })) {
        continue;
      }
      UseCopies(&node);
      for (ValueId& output : node.outputs) {
        const ValueId copy = graph_.AddActivationLike(output);
        copy_of_[Index(output)] = copy;
        output = copy;
      }
      nodes->push_back(std::move(node));
    }
  }

  void UseCopies(Node* node) const {
    for (ValueId& input : node->inputs) {
      if (Index(input) < copy_of_.size() && IsDropped(input)) input = *copy_of_[Index(input)];
    }
  }

  struct Block {
    std::size_t begin = 0;
    std::size_t end = 0;
    bool copied = false;
  };

  Graph graph_;
  std::size_t backward_;  // index of its first node
  std::vector<Block> blocks_;
  // Indexed by values of the original graph:
  std::vector<std::size_t> block_;
  std::vector<ValueId> memory_;  // the storage of a view, or the value itself
  std::vector<bool> kept_;       // by memory_
  std::vector<bool> wanted_;
  std::vector<std::optional<ValueId>> copy_of_;
};

// Every c-th end, including the last one.
std::vector<std::size_t> SelectEvery(std::span<const std::size_t> ends, std::size_t c) {
  std::vector<std::size_t> chosen;
  for (std::size_t i = (ends.size() - 1) % c; i < ends.size(); i += c) chosen.push_back(ends[i]);
  return chosen;
}

}  // namespace

std::vector<std::size_t> FindBlocks(const Graph& graph, std::span<const ValueId> ends,
                                    ValueId seed) {
  std::vector<std::size_t> found;
  const std::size_t backward = BackwardBegin(graph, seed);
  for (std::size_t i = 0; i < backward; ++i) {
    const Node& node = graph.nodes()[i];
    const auto is_end = [&](ValueId output) { return std::ranges::count(ends, output) > 0; };
    if (std::ranges::any_of(node.outputs, is_end)) found.push_back(i);
  }
  // Nodes that are only views do not make a block.
  const auto is_view = [&](std::size_t i) { return graph.nodes()[i].function->is_view(); };
  std::size_t computes = 0;
  while (computes < backward && is_view(computes)) ++computes;
  std::erase_if(found, [computes](std::size_t end) { return end < computes; });
  return found;
}

Status RecomputeBlocks(std::span<const ValueId> ends, ValueId seed, std::int64_t micro_steps,
                       Graph* graph) {
  const std::vector<std::size_t> all = FindBlocks(*graph, ends, seed);
  if (all.empty()) {
    return {ErrorKind::kConfig,
            "recompute: BLOCKS: expected a model that can be cut where only one value crosses, "
            "found no such place before its last layer"};
  }
  std::optional<Graph> best;
  std::int64_t least = 0;
  for (std::size_t c = 1; c <= all.size(); c += std::max<std::size_t>(1, c / 2)) {
    Graph tried = Pass(*graph, SelectEvery(all, c), seed).Run();
    const MemoryPlan plan = PlanMemory(tried, micro_steps);
    const std::int64_t bytes = plan.arena_bytes + micro_steps * plan.kept_bytes;
    if (best && bytes >= least) continue;
    best = std::move(tried);
    least = bytes;
  }
  *graph = *std::move(best);
  return Status::Ok();
}

}  // namespace gaccd
