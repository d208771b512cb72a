// Fuser: the nodes of a graph while fusion rules merge them (FuseForCuda). A rule is next to the
// function that it records, and in that function's row of the table (function_table.h).
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "daemon/autograd/function.h"

namespace gaccd {

class Fuser {
 public:
  explicit Fuser(const Graph& graph);

  // Nodes are known by their place, which they keep; erased ones are no function's.
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] const Node& node(std::size_t i) const { return nodes_[i]; }
  template <typename F>
  [[nodiscard]] bool Is(std::size_t i) const {
    return dynamic_cast<const F*>(nodes_[i].function.get()) != nullptr;
  }
  // The first node of this function that `matches`.
  template <typename F, typename Match>
  [[nodiscard]] std::optional<std::size_t> Find(const Match& matches) const {
    for (std::size_t i = 0; i < size(); ++i) {
      if (Is<F>(i) && matches(nodes_[i])) return i;
    }
    return std::nullopt;
  }

  // Output 0 of node i is the gradient of a parameter: nobody reads it in this graph.
  [[nodiscard]] bool WritesParameterGradient(std::size_t i) const;
  // No node at `place` or after it makes the value.
  [[nodiscard]] bool MadeBefore(ValueId value, std::size_t place) const;
  // Outputs of `loss` other than its first are read by no node but `reader`, and by no caller.
  [[nodiscard]] bool OnlySumIsRead(std::size_t loss,
                                   std::optional<std::size_t> reader = std::nullopt) const;

  void Replace(std::size_t i, Node node) { nodes_[i] = std::move(node); }
  void Erase(std::size_t i) { nodes_[i] = {}; }

  // loss(input, target) -> (loss_sum, ...) and its gradient(..., target, dloss) -> dinput
  //   => fused(input, target, dloss) -> (dinput, loss_sum), in place of the loss.
  // The gradient reads the loss's second output, if there is one, or its input.
  template <typename Loss, typename LossGradient, typename Fused>
  void FuseLoss() {
    for (std::size_t i = 0; i < size(); ++i) {
      if (!Is<Loss>(i)) continue;
      const Node& loss = nodes_[i];
      const ValueId read = loss.outputs.size() > 1 ? loss.outputs[1] : loss.inputs[0];
      const auto j = Find<LossGradient>([&](const Node& gradient) {
        return gradient.inputs[0] == read && gradient.inputs[1] == loss.inputs[1];
      });
      if (!j || !MadeBefore(nodes_[*j].inputs[2], i) || !OnlySumIsRead(i, *j)) continue;
      Replace(i, {std::make_shared<Fused>(),
                  {loss.inputs[0], loss.inputs[1], nodes_[*j].inputs[2]},
                  {nodes_[*j].outputs[0], loss.outputs[0]}});
      Erase(*j);
    }
  }

  // The nodes that are left, in their order.
  [[nodiscard]] std::vector<Node> Finish() &&;

 private:
  const Graph& graph_;
  std::vector<Node> nodes_;  // erased: without a function
};

}  // namespace gaccd
