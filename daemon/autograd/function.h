// Function: what a node does, said in one place: how shapes follow and which are refused, and its
// gradient, written by recording further nodes. Its computation is in one kernel file per
// device (ops/x_cpu.cc). Functions are immutable; all state of a run is in the kernel.
#pragma once

#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/autograd/graph.h"

namespace gaccd {

// What Function::Gradient works with: the node, the gradients of its outputs, and where to record.
class GradientScope {
 public:
  GradientScope(Graph& graph, const Node& node, std::vector<std::optional<ValueId>>& gradients)
      : graph_(graph), node_(node), gradients_(gradients) {}

  [[nodiscard]] Graph& graph() { return graph_; }
  [[nodiscard]] std::size_t inputs() const { return node_.inputs.size(); }
  [[nodiscard]] ValueId input(std::size_t i) const { return node_.inputs[i]; }
  [[nodiscard]] ValueId output(std::size_t i) const { return node_.outputs[i]; }
  // A copy: what is recorded next may move values.
  [[nodiscard]] Shape input_shape(std::size_t i) const {
    return graph_.value(node_.inputs[i]).spec.shape;
  }
  [[nodiscard]] bool NeedsGradient(std::size_t input) const {
    return graph_.value(node_.inputs[input]).needs_gradient;
  }
  // d objective / d output i. REQUIRES: HasOutputGradient(i).
  [[nodiscard]] ValueId OutputGradient(std::size_t i) const;
  [[nodiscard]] bool HasOutputGradient(std::size_t i) const;

  // Records function(inputs), whose output j is the gradient of input which[j]. For a parameter it
  // is added into the flat gradient buffer: by the kernel where the function can_accumulate(j),
  // else by an Accumulate node. For an activation it is a new value, added to what other users of
  // the activation gave. The gradient of an input that needs none is computed and not used; if no
  // input needs one, nothing is recorded.
  // kInternal: the function has another number of outputs, or one of another shape or type than
  // its input.
  Status SetInputGradients(std::span<const std::size_t> which,
                           std::shared_ptr<const Function> function, std::vector<ValueId> inputs);
  // The same for one input.
  Status SetInputGradient(std::size_t i, std::shared_ptr<const Function> function,
                          std::vector<ValueId> inputs) {
    return SetInputGradients({&i, 1}, std::move(function), std::move(inputs));
  }
  // Where other users of an activation gave a part of its gradient already: records
  // function(that part, inputs..), whose output is the sum. False: there is none.
  Result<bool> AddToInputGradient(std::size_t i, std::shared_ptr<const Function> function,
                                  std::vector<ValueId> inputs);

 private:
  // Adds `gradient`, a value, to what is known of the gradient of `target`.
  Status AddGradient(ValueId target, ValueId gradient);

  Graph& graph_;
  const Node& node_;
  std::vector<std::optional<ValueId>>& gradients_;  // by value
};

class Function {
 public:
  virtual ~Function() = default;

  // Unique among all functions: kernels are found by it. "linear", "linear_weight_gradient", ...
  [[nodiscard]] virtual std::string_view name() const = 0;

  // The outputs for these inputs, or kConfig with the expected and the found shape.
  [[nodiscard]] virtual OutputSpecs Infer(std::span<const ValueSpec> inputs) const = 0;

  // Records the gradients of the inputs that need one. Default: refuses, by name.
  virtual Status Gradient(GradientScope& scope) const;

  // A function that does this and then `next` (its only user) in one go, or null if there is none.
  [[nodiscard]] virtual std::shared_ptr<const Function> FoldWith(const Function& next) const;

  // Floating-point operations of its matrix products, 2 m n k each.
  [[nodiscard]] virtual double ProductFlops(std::span<const ValueSpec> /*inputs*/) const {
    return 0;
  }

  // Output 0 is input 0 under another shape: no memory, no kernel.
  [[nodiscard]] virtual bool is_view() const { return false; }
  // Output 0 may be written over input 0 where nobody else reads that.
  [[nodiscard]] virtual bool can_run_in_place() const { return false; }
  // Its kernels communicate with the other ranks, which all run it at the same place. A captured
  // CUDA graph is cut there.
  [[nodiscard]] virtual bool is_collective() const { return false; }
  // Its output is the sum of its input over all micro-batches of an update and all ranks. It has no
  // kernel: a graph is cut there (executor.h).
  [[nodiscard]] virtual bool is_update_sum() const { return false; }
  // A graph runs in segments, of which one ends here.
  [[nodiscard]] virtual bool ends_segment() const { return is_update_sum(); }
  // Its kernels can add to this output instead of overwriting it (Kernel::Run), so that they may
  // write a parameter gradient themselves. For all others an Accumulate node (add.h) does it.
  [[nodiscard]] virtual bool can_accumulate(std::size_t /*output*/) const { return false; }
};

// Of all nodes.
[[nodiscard]] double ProductFlops(const Graph& graph);

// Records the backward half: from `objective`, whose own gradient is the input `seed` (f32; of a
// loss one element, else of the objective's shape), to the gradients of all parameters it depends
// on. kConfig: it depends on none, or a function on the way has no gradient. gradients: where asked
// for, by value that was recorded before: its gradient, if it has one.
Status RecordGradients(Graph& graph, ValueId objective, ValueId seed,
                       std::vector<std::optional<ValueId>>* gradients = nullptr);

}  // namespace gaccd
