// Fuser, FuseForCpu(), FuseForCuda() and CheckCudaKernels(): decisions that depend only on the
// graph; also built without CUDA.
#include "daemon/ops/fuse.h"

#include <algorithm>
#include <set>
#include <string>

#include "collectives/base/strings.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/function_table.h"
#include "daemon/ops/pad_rows.h"

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

void FuseForCuda(Graph& graph) {
  Fuser fuser(graph);
  for (const Row& row : kRows) {
    if (row.fusion != nullptr) row.fusion(fuser);
  }
  graph.ReplaceNodes(std::move(fuser).Finish());
  PadRows(graph);
}

}  // namespace gaccd
