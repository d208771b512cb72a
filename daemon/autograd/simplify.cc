#include "daemon/autograd/simplify.h"

#include <algorithm>
#include <utility>

#include "daemon/autograd/add.h"
#include "daemon/autograd/function.h"

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

}  // namespace gaccd
