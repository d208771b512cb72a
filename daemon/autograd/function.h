// Function: the definition of a node: output shapes, accepted inputs, and the gradient, which
// records further nodes. Kernels are in one file per device (ops/x_cpu.cc). Functions are
// immutable; the state of a run is in the kernel.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/autograd/graph.h"

namespace gaccd {

// Context of Function::Gradient: the node, the gradients of its outputs, and the graph to record
// in.
class GradientScope {
 public:
  GradientScope(Graph& graph, const Node& node, std::vector<std::optional<ValueId>>& gradients)
      : graph_(graph), node_(node), gradients_(gradients) {}

  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] std::size_t inputs() const { return node_.inputs.size(); }
  [[nodiscard]] ValueId input(std::size_t i) const { return node_.inputs[i]; }
  [[nodiscard]] ValueId output(std::size_t i) const { return node_.outputs[i]; }
  // Returns a copy: recording more nodes may move values.
  [[nodiscard]] Shape input_shape(std::size_t i) const {
    return graph_.value(node_.inputs[i]).spec.shape;
  }
  [[nodiscard]] bool NeedsGradient(std::size_t input) const {
    return graph_.value(node_.inputs[input]).needs_gradient;
  }
  // d objective / d output i. REQUIRES: HasOutputGradient(i).
  [[nodiscard]] ValueId OutputGradient(std::size_t i) const;
  [[nodiscard]] bool HasOutputGradient(std::size_t i) const;

  // Records function(inputs), whose output j is the gradient of input which[j]. The gradient of a
  // parameter is added to the flat gradient buffer: by the kernel if the function
  // can_accumulate(j), otherwise by an Accumulate node. The gradient of an activation is a new
  // value, added to the gradients from its other users. If only some inputs need a gradient, the
  // others are computed and not used; if none does, nothing is recorded.
  // kInternal: the number of outputs differs, or the shape or type of one differs from its input.
  Status SetInputGradients(std::span<const std::size_t> which,
                           std::shared_ptr<const Function> function, std::vector<ValueId> inputs);
  // The same for one input.
  Status SetInputGradient(std::size_t i, std::shared_ptr<const Function> function,
                          std::vector<ValueId> inputs) {
    return SetInputGradients({&i, 1}, std::move(function), std::move(inputs));
  }
  // If other users of an activation have already contributed to its gradient: records
  // function(contribution, inputs...), whose output is the sum, and returns true. Otherwise returns
  // false.
  Result<bool> AddToInputGradient(std::size_t i, std::shared_ptr<const Function> function,
                                  std::vector<ValueId> inputs);

 private:
  // Adds `gradient` to the gradient of `target` so far.
  Status AddGradient(ValueId target, ValueId gradient);

  Graph& graph_;
  const Node& node_;
  std::vector<std::optional<ValueId>>& gradients_;  // by value
};

class Function {
 public:
  virtual ~Function() = default;

  // Unique; kernels are looked up by it: "linear", "linear_weight_gradient", ...
  [[nodiscard]] virtual std::string_view name() const = 0;

  // The outputs for these inputs, or kConfig with the expected and the actual shape.
  [[nodiscard]] virtual OutputSpecs Infer(std::span<const ValueSpec> inputs) const = 0;

  // Records the gradients of the inputs that need one. Default: an error with the name.
  virtual Status Gradient(GradientScope& scope) const;

  // A function that computes this and then `next` (its only user) in one kernel, or null.
  [[nodiscard]] virtual std::shared_ptr<const Function> FoldWith(const Function& next) const;

  // Floating-point operations of its matrix products, 2 m n k each.
  [[nodiscard]] virtual double ProductFlops(std::span<const ValueSpec> /*inputs*/) const {
    return 0;
  }

  // Output 0 is input 0 with another shape: no memory, no kernel.
  [[nodiscard]] virtual bool is_view() const { return false; }
  // The backward stops here: no gradient of the outputs or, through this node, of the inputs.
  [[nodiscard]] virtual bool stops_gradient() const { return false; }
  // Output 0 may overwrite input 0 if no other node, and no other input of this one, reads that.
  [[nodiscard]] virtual bool can_run_in_place() const { return false; }
  // Kernels communicate with the other ranks, which all run the node at the same position. A
  // captured CUDA graph is cut there.
  [[nodiscard]] virtual bool is_collective() const { return false; }
  // The output is the sum of the input over all micro-batches of an update and all ranks. Has no
  // kernel: a graph is cut there (executor.h).
  [[nodiscard]] virtual bool is_update_sum() const { return false; }
  // The graph runs in segments, one of which ends at this node.
  [[nodiscard]] virtual bool ends_segment() const { return is_update_sum(); }
  // Kernels can add to this output instead of overwriting it (Kernel::Run), so that they may write
  // a parameter gradient directly. Otherwise an Accumulate node (add.h) adds it.
  [[nodiscard]] virtual bool can_accumulate(std::size_t /*output*/) const { return false; }
};

// Sum over all nodes.
[[nodiscard]] double ProductFlops(const Graph& graph);

// Records the backward half, from `objective` to the gradients of all parameters that it depends
// on. `seed` is the input with the gradient of the objective itself (f32; one element for a loss,
// otherwise the objective's shape). kConfig: it depends on no parameter, or a function has no
// gradient. gradients: if not null, receives for each value recorded so far its gradient, if any.
Status RecordGradients(Graph& graph, ValueId objective, ValueId seed,
                       std::vector<std::optional<ValueId>>* gradients = nullptr);

}  // namespace gaccd
