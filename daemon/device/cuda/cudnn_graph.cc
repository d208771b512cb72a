#include "daemon/device/cuda/cudnn_graph.h"

// No JSON and no log of its own; its functions of cuDNN come from cudnn_dlhandle.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <cmath>
#include <exception>
#include <unordered_map>
#include <vector>

#include "collectives/base/strings.h"

// Where the frontend looks for cuDNN's functions; it wants a variable of this name.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace gaccd {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

enum Uid : std::int64_t { kQ = 1, kK, kV, kLengths, kY, kLse, kDy, kDq, kDk, kDv };

Status Refused(const SdpaSpec& spec, const std::string& why) {
  return {ErrorKind::kUnavailable, StrCat("cuDNN cannot do the ", ToText(spec), ": ", why)};
}

// The frontend returns errors, and throws where it looks for functions.
template <typename Call>
Status Try(const SdpaSpec& spec, const Call& call) {
  try {
    const fe::error_t error = call();
    return error.is_good() ? Status::Ok() : Refused(spec, error.err_msg);
  } catch (const std::exception& thrown) {
    return Refused(spec, thrown.what());
  }
}

fe::DataType_t TypeOf(const SdpaSpec& spec) {
  return spec.dtype == DType::kFP16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

// [B, H, T, D] as the frontend names dimensions, in rows `step` values apart.
fe::graph::Tensor_attributes Rows(const SdpaSpec& spec, Uid uid, std::int64_t step) {
  return fe::graph::Tensor_attributes()
      .set_uid(uid)
      .set_data_type(TypeOf(spec))
      .set_dim({spec.sequences, spec.heads, spec.length, spec.width})
      .set_stride({spec.length * step, spec.width, step, 1});
}

fe::graph::Tensor_attributes Sums(const SdpaSpec& spec) {
  return fe::graph::Tensor_attributes()
      .set_uid(kLse)
      .set_data_type(fe::DataType_t::FLOAT)
      .set_dim({spec.sequences, spec.heads, spec.length, 1})
      .set_stride({spec.heads * spec.length, spec.length, 1, 1});
}

// What an operation writes is made by the frontend.
void SetOutput(const Tensor& made, const fe::graph::Tensor_attributes& as) {
  made->set_uid(as.get_uid())
      .set_data_type(as.get_data_type())
      .set_dim(as.get_dim())
      .set_stride(as.get_stride())
      .set_output(true);
}

// What the attributes of both directions have in common.
template <typename Attributes>
Attributes AttributesOf(const SdpaSpec& spec, fe::graph::Graph& graph) {
  Attributes attributes;
  attributes.set_attn_scale(static_cast<float>(1 / std::sqrt(static_cast<double>(spec.width))));
  if (spec.causal) {
    attributes.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  }
  if (spec.lengths) {
    const Tensor lengths = graph.tensor(fe::graph::Tensor_attributes()
                                            .set_uid(kLengths)
                                            .set_data_type(fe::DataType_t::INT32)
                                            .set_dim({spec.sequences, 1, 1, 1})
                                            .set_stride({1, 1, 1, 1}));
    attributes.set_padding_mask(true).set_seq_len_q(lengths).set_seq_len_kv(lengths);
  }
  return attributes;
}

void Describe(const SdpaSpec& spec, fe::graph::Graph& graph) {
  const std::int64_t row = spec.heads * spec.width;
  const Tensor q = graph.tensor(Rows(spec, kQ, spec.step));
  const Tensor k = graph.tensor(Rows(spec, kK, spec.step));
  const Tensor v = graph.tensor(Rows(spec, kV, spec.step));
  if (!spec.backward) {
    auto attributes = AttributesOf<fe::graph::SDPA_attributes>(spec, graph);
    const auto [y, lse] = graph.sdpa(q, k, v, attributes.set_generate_stats(true));
    SetOutput(y, Rows(spec, kY, row));
    SetOutput(lse, Sums(spec));
    return;
  }
  auto attributes = AttributesOf<fe::graph::SDPA_backward_attributes>(spec, graph);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      q, k, v, graph.tensor(Rows(spec, kY, row)), graph.tensor(Rows(spec, kDy, row)),
      graph.tensor(Sums(spec)), attributes.set_deterministic_algorithm(spec.deterministic));
  SetOutput(dq, Rows(spec, kDq, spec.step));
  SetOutput(dk, Rows(spec, kDk, spec.step));
  SetOutput(dv, Rows(spec, kDv, spec.step));
}

fe::error_t SetDevice(const CudnnTarget& target, fe::graph::Graph& graph) {
  if (target.handle != nullptr) return {};
  auto device = std::make_shared<fe::DeviceProperties>();
  const fe::error_t error =
      device->deserialize(std::vector<std::uint8_t>(target.device.begin(), target.device.end()));
  if (error.is_good()) graph.set_device_properties(device);
  return error;
}

}  // namespace

struct CudnnGraph::Parts {
  SdpaSpec spec;
  cudnnHandle_t handle = nullptr;
  fe::graph::Graph graph;
  std::int64_t workspace_bytes = 0;
};

CudnnGraph::CudnnGraph(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

CudnnGraph::~CudnnGraph() = default;

Result<std::unique_ptr<CudnnGraph>> CudnnGraph::Create(const CudnnApi& api,
                                                       const CudnnTarget& target,
                                                       const SdpaSpec& spec) {
  GACCD_RETURN_IF_ERROR(Check(spec));
  fe::cudnn_dlhandle = api.library;  // the only one there is: LoadCudnn()
  auto parts = std::make_unique<Parts>();
  parts->spec = spec;
  parts->handle = target.handle;
  fe::graph::Graph& graph = parts->graph;
  // Recorded graphs keep no plan alive: SdpaPlan says that the plan has to stay.
  graph.set_io_data_type(TypeOf(spec))
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT)
      .set_sm_version(target.compute_capability)
      .set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);
  Describe(spec, graph);
  GACCD_RETURN_IF_ERROR(Try(spec, [&] { return SetDevice(target, graph); }));
  GACCD_RETURN_IF_ERROR(Try(spec, [&] { return graph.validate(); }));
  GACCD_RETURN_IF_ERROR(Try(spec, [&] { return graph.build_operation_graph(target.handle); }));
  GACCD_RETURN_IF_ERROR(
      Try(spec, [&] { return graph.create_execution_plans({fe::HeurMode_t::A}); }));
  GACCD_RETURN_IF_ERROR(Try(spec, [&] { return graph.check_support(); }));
  return std::unique_ptr<CudnnGraph>(new CudnnGraph(std::move(parts)));
}

Status CudnnGraph::Compile() {
  fe::graph::Graph& graph = parts_->graph;
  GACCD_RETURN_IF_ERROR(Try(parts_->spec, [&] { return graph.build_plans(); }));
  return Try(parts_->spec, [&] { return graph.get_workspace_size(parts_->workspace_bytes); });
}

std::int64_t CudnnGraph::workspace_bytes() const { return parts_->workspace_bytes; }

Status CudnnGraph::Enqueue(const SdpaPointers& p, void* workspace) {
  std::unordered_map<std::int64_t, void*> pointers = {{kQ, const_cast<void*>(p.q)},
                                                      {kK, const_cast<void*>(p.k)},
                                                      {kV, const_cast<void*>(p.v)},
                                                      {kY, p.y},
                                                      {kLse, p.lse}};
  if (parts_->spec.lengths) pointers[kLengths] = const_cast<std::int32_t*>(p.lengths);
  if (parts_->spec.backward) {
    pointers.insert({{kDy, const_cast<void*>(p.dy)}, {kDq, p.dq}, {kDk, p.dk}, {kDv, p.dv}});
  }
  return Try(parts_->spec,
             [&] { return parts_->graph.execute(parts_->handle, pointers, workspace); });
}

}  // namespace gaccd
