// Fuser: the nodes of a graph while fusion rules merge them (FuseForCpu, FuseForCuda). A rule is
// defined next to the function that it records, and listed in that function's row (function_row.h).
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/autograd/function.h"

namespace gaccd {

class Fuser {
 public:
  explicit Fuser(const Graph& graph);

  // Nodes are identified by their index, which does not change; erased ones have no function.
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] const Node& node(std::size_t i) const { return nodes_[i]; }
  template <typename F>
  [[nodiscard]] bool Is(std::size_t i) const {
    return dynamic_cast<const F*>(nodes_[i].function.get()) != nullptr;
  }
  // The first node of function type F for which matches() is true.
  template <typename F, typename Match>
  [[nodiscard]] std::optional<std::size_t> Find(const Match& matches) const {
    for (std::size_t i = 0; i < size(); ++i) {
      if (Is<F>(i) && matches(nodes_[i])) return i;
    }
    return std::nullopt;
  }

  // Indices of the nodes that read the value.
  [[nodiscard]] std::vector<std::size_t> FindReaders(ValueId value) const;
  // Whether the value is not readable by the caller.
  [[nodiscard]] bool IsActivation(ValueId value) const;
  [[nodiscard]] const ValueSpec& spec(ValueId value) const { return graph_.value(value).spec; }
  // Whether output 0 of node i is the gradient of a parameter, which no node of this graph reads.
  [[nodiscard]] bool WritesParameterGradient(std::size_t i) const;
  // Whether the value is computed by a node before `place`, or by none.
  [[nodiscard]] bool ComputedBefore(ValueId value, std::size_t place) const;
  // Whether only `reader` reads the value: no other node, and not the caller.
  [[nodiscard]] bool OnlyReadBy(ValueId value,
                                std::optional<std::size_t> reader = std::nullopt) const;

  void Replace(std::size_t i, Node node) { nodes_[i] = std::move(node); }
  void Erase(std::size_t i) { nodes_[i] = {}; }

  // The remaining nodes in their order.
  [[nodiscard]] std::vector<Node> Finish() &&;

 private:
  const Graph& graph_;
  std::vector<Node> nodes_;  // erased ones have no function
};

}  // namespace gaccd
