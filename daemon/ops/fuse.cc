// Fuser, FuseForCpu(), FuseForCuda() and CheckCudaKernels(): decisions that depend only on the
// graph; also built without CUDA.

#include "daemon/ops/fuse.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "collectives/base/strings.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/function_table.h"

namespace gaccd {

namespace {

struct Row {
  std::string_view name;
  bool has_cuda = false;
  FusionRule fusion = nullptr;
  CudaCheck check = nullptr;
};
constexpr auto kRows = FromFunctionTable<Row>([](const FunctionRow& row) {
  return Row{row.name, row.cuda != nullptr, row.fusion, row.check};
});

// Checks the limits of kernels; the error names the layer.
Status CheckCudaLimits(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    const Row* row = FindRow(kRows, node.function->name());
    if (row == nullptr || row->check == nullptr) continue;
    std::vector<ValueSpec> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(graph.value(id).spec);
    Status status = row->check(*node.function, inputs);
    if (!status.ok()) return std::move(status).WithContext(graph.value(node.outputs[0]).name);
  }
  return Status::Ok();
}

}  // namespace

Fuser::Fuser(const Graph& graph)
    : graph_(graph), nodes_(graph.nodes().begin(), graph.nodes().end()) {}

std::vector<std::size_t> Fuser::FindReaders(ValueId value) const {
  std::vector<std::size_t> readers;
  for (std::size_t i = 0; i < nodes_.size(); ++i) {
    if (std::ranges::count(nodes_[i].inputs, value) > 0) readers.push_back(i);
  }
  return readers;
}

bool Fuser::IsActivation(ValueId value) const {
  return graph_.value(value).kind == ValueKind::kActivation;
}

bool Fuser::WritesParameterGradient(std::size_t i) const {
  return graph_.value(nodes_[i].outputs[0]).kind == ValueKind::kParameterGradient;
}

bool Fuser::ComputedBefore(ValueId value, std::size_t place) const {
  for (std::size_t i = place; i < nodes_.size(); ++i) {
    if (std::ranges::count(nodes_[i].outputs, value) > 0) return false;
  }
  return true;
}

bool Fuser::OnlyReadBy(ValueId value, std::optional<std::size_t> reader) const {
  if (!IsActivation(value)) return false;
  for (const std::size_t i : FindReaders(value)) {
    if (i != reader) return false;
  }
  return true;
}

std::vector<Node> Fuser::Finish() && {
  std::erase_if(nodes_, [](const Node& node) { return node.function == nullptr; });
  return std::move(nodes_);
}

bool HasCudaKernel(std::string_view function) {
  const Row* row = FindRow(kRows, function);
  return row != nullptr && row->has_cuda;
}

Status CheckCudaKernels(const Graph& graph) {
  std::set<std::string_view> missing;
  for (const Node& node : graph.nodes()) {
    const std::string_view name = node.function->name();
    const bool runs = !node.function->is_view() && !node.function->is_update_sum();
    if (runs && !HasCudaKernel(name)) missing.insert(name);
  }
  if (missing.empty()) return CheckCudaLimits(graph);
  std::string names;
  for (const std::string_view name : missing)
    names += StrCat(names.empty() ? "'" : ", '", name, "'");
  return {ErrorKind::kConfig, StrCat("no kernel for the GPU: ", names, "; use device cpu")};
}

void FuseForCpu(Graph& graph) {
  Fuser fuser(graph);
  FuseBatchNorms(fuser);
  FuseReluGradients(fuser);
  graph.ReplaceNodes(std::move(fuser).Finish());
}

void FuseRoundedForCpu(Graph& graph) {
  Fuser fuser(graph);
  FuseLinearGeluSlope(fuser);
  FuseLinearGradients(fuser);
  // Not FuseAddLayerNorm(): the norm would become part of the block that ends with the sum, so that
  // recomputing blocks would keep its result, too.
  FuseLayerNormGradientAdd(fuser);
  graph.ReplaceNodes(std::move(fuser).Finish());
}

void FuseForCuda(Graph& graph) {
  Fuser fuser(graph);
  for (const Row& row : kRows) {
    if (row.fusion != nullptr) row.fusion(fuser);
  }
  graph.ReplaceNodes(std::move(fuser).Finish());
  PadRows(graph);
}

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
