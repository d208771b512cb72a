// Graph: one micro-step, recorded once. Values are tensors, nodes are operations in an executable
// order. Forward and backward are one graph: the gradient of a function records further nodes.
//
// Convention: an activation gradient is written once, by the node that computes it. A parameter
// gradient is accumulated by every node that has it as an output (kind kParameterGradient), over
// all micro-steps of an update; see Kernel::Run. The first such node overwrites it in the first
// micro-step, so it is never cleared.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "daemon/tensor/shape.h"

namespace gaccd {

class Function;
// The outputs of a function, or why it does not accept its inputs.
using OutputSpecs = Result<std::vector<ValueSpec>>;

using ValueId = std::int32_t;
[[nodiscard]] inline std::size_t Index(ValueId id) { return static_cast<std::size_t>(id); }

enum class ValueKind : std::uint8_t {
  kInput,      // bound to memory of the caller before every run
  kParameter,  // an entry of the flat parameter buffer
  // planned memory, written and read within one run; includes gradients of activations
  kActivation,
  kParameterGradient,  // an entry of the flat gradient buffer; accumulates
  kOutput,             // like an activation, but kept until the caller has read it
};

struct Value {
  std::string name;
  ValueSpec spec;
  ValueKind kind = ValueKind::kActivation;
  std::size_t parameter = 0;    // kParameter, kParameterGradient: index in the FlatLayout
  bool needs_gradient = false;  // false for integer types
};

struct Node {
  std::shared_ptr<const Function> function;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
};

// Recorded by one thread.
class Graph {
 public:
  ValueId AddInput(std::string name, ValueSpec spec);
  // A frozen parameter needs no gradient.
  ValueId AddParameter(std::string name, Shape shape, std::size_t parameter, bool frozen = false);

  // Records function(inputs). Its outputs are new activations. Error: what Infer() refuses, with
  // the function's name before it.
  Result<std::vector<ValueId>> Apply(std::shared_ptr<const Function> function,
                                     std::vector<ValueId> inputs);

  // The same, but output j is added to the gradient of parameter targets[j] (a value of kind
  // kParameter), if set. kInternal if the numbers of outputs and targets differ, a shape is not the
  // parameter's, or the function cannot accumulate there.
  Result<std::vector<ValueId>> ApplyToGradients(std::shared_ptr<const Function> function,
                                                std::vector<ValueId> inputs,
                                                const std::vector<std::optional<ValueId>>& targets);

  // Adds a new activation with the spec of `value`: for passes that run a node twice.
  ValueId AddActivationLike(ValueId value);

  // Keeps the value readable after the run. REQUIRES: an activation.
  void MarkOutput(ValueId value) { values_[Index(value)].kind = ValueKind::kOutput; }

  // See ValueSpec. REQUIRES: an activation [rows, columns].
  void SetRowStride(ValueId value, std::int64_t row_stride) {
    values_[Index(value)].spec.row_stride = row_stride;
  }

  // Name of an activation in messages, for example "layer 'fc1'". Default: the name of its
  // function.
  void Rename(ValueId value, std::string name) { values_[Index(value)].name = std::move(name); }

  // References are valid until the next value is recorded.
  [[nodiscard]] const Value& value(ValueId id) const { return values_[Index(id)]; }
  [[nodiscard]] std::span<const Value> values() const { return values_; }
  [[nodiscard]] std::span<const Node> nodes() const { return nodes_; }
  void ReplaceNodes(std::vector<Node> nodes) { nodes_ = std::move(nodes); }

 private:
  ValueId AddValue(Value value);
  Status CheckTarget(const Function& function, std::size_t output, const ValueSpec& found,
                     const Value& parameter) const;
  OutputSpecs InferOutputs(const Function& function, std::span<const ValueId> inputs) const;

  std::vector<Value> values_;
  std::vector<Node> nodes_;
};

}  // namespace gaccd
