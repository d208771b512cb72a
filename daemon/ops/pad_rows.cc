#include "daemon/ops/pad_rows.h"

#include <string_view>
#include <vector>

#include "daemon/autograd/function.h"
#include "daemon/ops/function_table.h"

namespace gaccd {
namespace {

struct StridedRow {
  std::string_view name;
  StridedOperands strided;
};
constexpr auto kStridedRows = FromFunctionTable<StridedRow>([](const FunctionRow& row) {
  return StridedRow{row.name, row.strided};
});

// for shorter rows the memory for padding outweighs the gain
constexpr std::int64_t kMinColumns = 1024;
constexpr std::int64_t kElements = 64;

std::int64_t StrideFor(const Value& value) {
  const ValueSpec& spec = value.spec;
  const bool is_matrix = value.kind == ValueKind::kActivation && spec.shape.size() == 2;
  return is_matrix ? RowStrideFor(spec.dtype, spec.shape[1]) : 0;
}

// Removes strides that this node does not support; returns whether anything changed.
bool Restrict(const Node& node, std::vector<bool>& padded) {
  const StridedRow* row = FindRow(kStridedRows, node.function->name());
  const StridedOperands strided = row != nullptr ? row->strided : StridedOperands{};
  bool changed = false;
  const auto keep = [&](const std::vector<ValueId>& operands, unsigned allowed) {
    for (std::size_t i = 0; i < operands.size(); ++i) {
      if (!padded[Index(operands[i])] || (allowed >> i & 1U) != 0) continue;
      padded[Index(operands[i])] = false;
      changed = true;
    }
  };
  keep(node.inputs, strided.inputs);
  keep(node.outputs, strided.outputs);
  if (!node.function->can_run_in_place()) return changed;
  const std::size_t in = Index(node.inputs[0]);
  const std::size_t out = Index(node.outputs[0]);
  if (padded[in] == padded[out]) return changed;
  padded[in] = padded[out] = false;
  return true;
}

}  // namespace

std::int64_t RowStrideFor(DType dtype, std::int64_t columns) {
  if (SizeOf(dtype) != 2 || columns < kMinColumns || columns % kRowsTogether == 0) return 0;
  return (columns + kElements - 1) / kElements * kElements;
}

void PadRows(Graph& graph) {
  std::vector<bool> padded;
  for (const Value& value : graph.values()) padded.push_back(StrideFor(value) > 0);
  for (bool changed = true; changed;) {
    changed = false;
    for (const Node& node : graph.nodes()) changed = Restrict(node, padded) || changed;
  }
  for (std::size_t v = 0; v < padded.size(); ++v) {
    if (padded[v]) graph.SetRowStride(static_cast<ValueId>(v), StrideFor(graph.values()[v]));
  }
}

}  // namespace gaccd
