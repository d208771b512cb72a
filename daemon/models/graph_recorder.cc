#include "daemon/models/graph_recorder.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/models/graph_ops.h"
#include "daemon/ops/image/channels_last.h"
#include "daemon/ops/layout/rearrange.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/number_functions.h"

namespace gaccd {
namespace {

Shape WithoutOnes(Shape shape) {
  std::erase(shape, 1);
  return shape;
}

// Reorders the pieces of a value.
Rearrangement MakeReordering(const GraphValue& value, const DimensionOrder& order,
                             std::int64_t samples) {
  Rearrangement made;
  const DimensionOrder to = CollectPieces(value, order);
  DimensionOrder from = to;
  std::ranges::sort(from);
  for (const std::size_t piece : from)
    made.from.push_back(ActualSize(value.memory[piece], samples));
  for (const std::size_t piece : to) {
    const auto place = std::ranges::find(from, piece) - from.begin();
    made.to.push_back(
        {.size = made.from[static_cast<std::size_t>(place)], .source = static_cast<int>(place)});
  }
  return made;
}

}  // namespace

GraphRecorder::GraphRecorder(nn::Recorder& recorder, const GraphFile& graph,
                             const std::map<std::string_view, nn::ParameterIndex>& parameters,
                             const NormStatistics& statistics)
    : recorder_(recorder), parameters_(parameters), statistics_(statistics) {
  for (const GraphTensor& tensor : graph.parameters) tensors_[tensor.name] = &tensor;
}

ValueId GraphRecorder::RecordTextMask() {
  std::vector<ValueId> texts = {recorder_.Input("tokens")};
  if (recorder_.HasTensor("lengths")) {
    lengths_of_texts_ = recorder_.Input("lengths");
    texts.push_back(*lengths_of_texts_);
  }
  mask_of_texts_ = recorder_.Apply(StrCat("model input '", kAttentionMask, "'"),
                                   std::make_shared<IdFunction>(IdFunctionKind::kKnownPositions),
                                   std::move(texts));
  return mask_of_texts_;
}

// The data may have no channel dimension for grey images, or vectors for samples of any shape.
void GraphRecorder::AddInput(const GraphTensor& input) {
  const bool is_mask = input.name == kAttentionMask && !recorder_.HasTensor(input.name) &&
                       recorder_.HasTensor("tokens");
  const ValueId id = is_mask ? RecordTextMask() : recorder_.Input(input.name);
  if (!ok()) return;
  const Shape expected(input.sizes.begin() + 1, input.sizes.end());
  const Shape found = recorder_.SampleShape(id);
  const bool fits = WithoutOnes(expected) == WithoutOnes(found) ||
                    (found.size() == 1 && found[0] == Elements(expected));
  if (!fits) {
    recorder_.Check(
        StrCat("model input '", input.name, "'"),
        {ErrorKind::kConfig, StrCat("the model was exported for the shape ", ToString(expected),
                                    ", but the data has ", ToString(found))});
  }
  values_[input.name] = InMemoryOrder(id, input.sizes, RowMajor(input.sizes.size()));
}

std::vector<CutDimension> GraphRecorder::AddDropped(Shape pieces) {
  std::vector<CutDimension> cut;
  const std::size_t i = dropped_.size();
  if (i < whole_dropped_.size() && whole_dropped_[i].size() == pieces.size()) {
    for (std::size_t d = 0; d < pieces.size(); ++d) {
      cut.push_back({.size = pieces[d], .whole = whole_dropped_[i][d]});
    }
  }
  dropped_.push_back(std::move(pieces));
  return cut;
}

void GraphRecorder::Begin(const GraphNode& node) {
  node_ = &node;
  where_ = node.Where();
}

GraphValue GraphRecorder::Expand(const std::vector<GraphNode>& nodes) {
  const GraphNode* const expanded = node_;
  GraphValue value;
  for (const GraphNode& node : nodes) {
    node_ = &node;  // where_ still names the expanded node
    value = FindGraphOp(node.op)->record(*this);
    if (!ok()) break;
    values_[node.name] = value;
  }
  node_ = expanded;
  return value;
}

GraphValue GraphRecorder::ValueOrPart(std::string_view name) {
  if (const auto found = values_.find(name); found != values_.end()) return found->second;
  const GraphTensor& tensor = *tensors_.at(name);
  return InMemoryOrder(recorder_.Parameter(parameters_.at(name)), tensor.sizes,
                       RowMajor(tensor.sizes.size()));
}

GraphValue GraphRecorder::Value(std::string_view name) {
  GraphValue value = ValueOrPart(name);
  if (!value.part || !ok()) return value;
  const ColumnRange& part = *value.part;
  const std::int64_t rows = Elements(recorder_.shape(part.matrix)) / part.columns;
  value.id = Apply(std::make_shared<Rearrange>(Rearrangement{
                       .from = {rows, part.columns},
                       .to = {{.size = rows, .source = 0},
                              {.size = part.width, .source = 1, .start = part.first}}}),
                   {part.matrix});
  value.part.reset();
  return value;
}

ValueId GraphRecorder::As(ValueId id, const Shape& shape) {
  if (recorder_.shape(id) == shape) return id;
  return Apply(std::make_shared<Reshape>(shape), {id});
}

ValueId GraphRecorder::InOrder(const GraphValue& value, const DimensionOrder& order) {
  if (HasMemoryOrder(value, order)) return value.id;
  if (!ok()) return nn::kNoValue;
  const auto exchange = ExchangeTo(value, order);
  const std::int64_t samples = recorder_.samples();
  if (!exchange || exchange->first < 0 || exchange->second < 0) {
    return Apply(std::make_shared<Rearrange>(MakeReordering(value, order, samples)), {value.id});
  }
  const ValueId blocks =
      As(value.id, {ActualSize(exchange->outer, samples), ActualSize(exchange->first, samples),
                    ActualSize(exchange->second, samples), 1});
  return Apply(std::make_shared<ChannelsLast>(), {blocks});
}

ValueId GraphRecorder::Rows(const GraphValue& value, const DimensionOrder& order,
                            std::size_t inner) {
  const ValueId id = InOrder(value, order);
  if (id == nn::kNoValue) return id;
  const Shape memory = ActualSizes(value.sizes, order);
  const auto columns = memory.end() - static_cast<std::ptrdiff_t>(inner);
  return As(id, {Elements({memory.begin(), columns}), Elements({columns, memory.end()})});
}

Shape GraphRecorder::ActualSizes(const Shape& sizes, const DimensionOrder& order) const {
  Shape counts;
  for (const std::size_t dimension : order) {
    counts.push_back(ActualSize(sizes[dimension], recorder_.samples()));
  }
  return counts;
}

ValueId GraphRecorder::Shaped(const GraphValue& value, const DimensionOrder& order) {
  const ValueId id = InOrder(value, order);
  return ok() ? As(id, ActualSizes(value.sizes, order)) : nn::kNoValue;
}

ValueId GraphRecorder::AsActivation(ValueId id) {
  const DType dtype = recorder_.activations();
  if (!ok() || recorder_.dtype(id) == dtype || recorder_.dtype(id) != DType::kF32) return id;
  return Apply(std::make_shared<Cast>(dtype), {id});
}

bool GraphRecorder::Expect(bool holds, const std::string& expected, const GraphValue& found) {
  if (holds) return true;
  return Expect(false, StrCat(expected, ", found the shape ", ToString(found.sizes)));
}

bool GraphRecorder::Expect(bool holds, const std::string& message) {
  if (!holds) recorder_.Check(where_, {ErrorKind::kConfig, message});
  return holds;
}

}  // namespace gaccd
