// GraphRecorder: records the nodes of an exported network in sequence, and gives the ops of
// graph_ops.h access to the values and attributes of the current node. As in nn::Recorder, the
// first error is kept; it names the node and the line of the user's model.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "daemon/config/job.h"
#include "daemon/models/graph_file.h"
#include "daemon/models/graph_value.h"
#include "daemon/models/norm_group.h"

namespace gaccd {

// An input of a graph that is computed if the data are texts without such a tensor.
inline constexpr std::string_view kAttentionMask = "attention_mask";

class GraphRecorder {
 public:
  // All references must outlive it. parameters: index in the list of the network, by name.
  GraphRecorder(nn::Recorder& recorder, const GraphFile& graph,
                const std::map<std::string_view, nn::ParameterIndex>& parameters,
                const NormStatistics& statistics);

  // Adds the tensor of the batch for an input of the graph. If the data are texts without
  // kAttentionMask, it is 1 before the length of a text and 0 from there on.
  void AddInput(const GraphTensor& input);
  void Begin(const GraphNode& node);
  void Finish(GraphValue value) { values_[node_->name] = std::move(value); }
  // Records these nodes instead of the current one; returns the value of the last.
  [[nodiscard]] GraphValue Expand(const std::vector<GraphNode>& nodes);

  [[nodiscard]] bool ok() const { return recorder_.status().ok(); }
  [[nodiscard]] nn::Recorder& recorder() { return recorder_; }
  // Settings of batch norms.
  [[nodiscard]] const NormStatistics& statistics() const { return statistics_; }
  [[nodiscard]] const std::string& where() const { return where_; }
  // A value or parameter of the graph by name. A part of a value is copied.
  [[nodiscard]] GraphValue Value(std::string_view name);

  // Inputs and attributes of the current node. REQUIRES: it passed CheckGraphNode().
  [[nodiscard]] GraphValue In(std::size_t i) { return Value(node_->inputs[i]); }
  [[nodiscard]] std::size_t inputs() const { return node_->inputs.size(); }
  [[nodiscard]] GraphValue InOrPart(std::size_t i) { return ValueOrPart(node_->inputs[i]); }
  [[nodiscard]] bool Has(std::size_t i) const {
    return i < node_->inputs.size() && !node_->inputs[i].empty();
  }
  [[nodiscard]] const std::string& InputName(std::size_t i) const { return node_->inputs[i]; }
  [[nodiscard]] nn::ParameterIndex Parameter(std::size_t i) const {
    return parameters_.at(node_->inputs[i]);
  }
  [[nodiscard]] const std::vector<std::int64_t>& Integers(std::string_view name) const {
    return node_->integers.at(std::string(name));
  }
  [[nodiscard]] std::int64_t Integer(std::string_view name) const { return Integers(name)[0]; }
  [[nodiscard]] ImagePair Pair(std::string_view name) const {
    return {Integers(name)[0], Integers(name)[1]};
  }
  [[nodiscard]] double Number(std::string_view name) const {
    return node_->numbers.at(std::string(name));
  }

  // Whether `id` is the mask that AddInput() computed for texts, and the lengths of the texts, if
  // the data has them.
  [[nodiscard]] bool IsTextMask(ValueId id) const { return mask_of_texts_ == id; }
  [[nodiscard]] std::optional<ValueId> lengths_of_texts() const { return lengths_of_texts_; }

  // Records the pieces of a sample in memory to which the current node applies dropout; empty if it
  // drops whole samples. Returns the argument `cut` of Recorder::Dropout().
  [[nodiscard]] std::vector<CutDimension> AddDropped(Shape pieces);
  [[nodiscard]] const std::vector<Shape>& dropped() const { return dropped_; }
  // dropped() of the texts before they were cut.
  void set_whole_dropped(std::span<const Shape> whole) { whole_dropped_ = whole; }

  // Output 0 of function(inputs).
  ValueId Apply(std::shared_ptr<const Function> function, std::vector<ValueId> inputs) {
    return recorder_.Apply(where_, std::move(function), std::move(inputs));
  }
  // The same memory with another shape.
  ValueId As(ValueId id, const Shape& shape);
  // The elements of `value` in this order; copied if its memory has another order.
  ValueId InOrder(const GraphValue& value, const DimensionOrder& order);
  // InOrder() with the shape of its sizes in this order.
  ValueId Shaped(const GraphValue& value, const DimensionOrder& order);
  // Converts f32 (parameters) to the type of activations.
  ValueId AsActivation(ValueId id);
  // The sizes in this order, for the samples of this recording.
  [[nodiscard]] Shape ActualSizes(const Shape& sizes, const DimensionOrder& order) const;
  // InOrder() as a matrix whose columns are the last `inner` dimensions of memory.
  ValueId Rows(const GraphValue& value, const DimensionOrder& order, std::size_t inner);

  [[nodiscard]] const std::string& name() const { return node_->name; }

  // Reports kConfig unless `holds`. Returns `holds`.
  bool Expect(bool holds, const std::string& expected, const GraphValue& found);
  bool Expect(bool holds, const std::string& message);

 private:
  [[nodiscard]] GraphValue ValueOrPart(std::string_view name);
  ValueId RecordTextMask();

  nn::Recorder& recorder_;
  const std::map<std::string_view, nn::ParameterIndex>& parameters_;
  NormStatistics statistics_;
  std::map<std::string_view, const GraphTensor*> tensors_;
  std::map<std::string, GraphValue, std::less<>> values_;
  ValueId mask_of_texts_ = nn::kNoValue;
  std::optional<ValueId> lengths_of_texts_;
  std::vector<Shape> dropped_;
  std::span<const Shape> whole_dropped_;
  const GraphNode* node_ = nullptr;
  std::string where_;
};

}  // namespace gaccd
