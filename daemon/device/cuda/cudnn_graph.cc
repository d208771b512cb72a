#include "daemon/device/cuda/cudnn_graph.h"

// Without JSON and logging; the functions of cuDNN are looked up in cudnn_dlhandle.
#define CUDNN_FRONTEND_SKIP_JSON_LIB
#define NV_CUDNN_FRONTEND_DISABLE_LOGGING
#define NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING
#include <cudnn_frontend.h>

#include <cmath>
#include <exception>
#include <limits>
#include <unordered_map>
#include <vector>

#include "collectives/base/strings.h"

// Where the frontend looks up cuDNN's functions; it requires a variable with this name.
void* cudnn_frontend::cudnn_dlhandle = nullptr;

namespace gaccd {
namespace {

namespace fe = cudnn_frontend;
using Tensor = std::shared_ptr<fe::graph::Tensor_attributes>;

// For attention; convolutions use kFirst, kSecond and kOut.
enum Uid : std::int64_t {
  kQ = 1,
  kK,
  kV,
  kLengths,
  kY,
  kLse,
  kDy,
  kDq,
  kDk,
  kDv,
  kFirst,
  kSecond,
  kOut
};

// The frontend returns errors whose first line is the reason and whose other lines list every
// engine, and throws if a function is missing. what: the operation.
template <typename Call>
Status Try(const std::string& what, const Call& call) {
  const auto refused = [&](const std::string& why) {
    return Status(ErrorKind::kUnavailable, StrCat("cuDNN cannot do the ", what, ": ", why));
  };
  try {
    const fe::error_t error = call();
    if (error.is_good()) return Status::Ok();
    return refused(error.err_msg.substr(0, error.err_msg.find('\n')));
  } catch (const std::exception& thrown) {
    return refused(thrown.what());
  }
}

fe::DataType_t ToCudnnType(DType dtype) {
  return dtype == DType::kFP16 ? fe::DataType_t::HALF : fe::DataType_t::BFLOAT16;
}

// [B, H, T, D] in the frontend's order of dimensions, with rows `step` values apart.
fe::graph::Tensor_attributes Rows(const SdpaSpec& spec, Uid uid, std::int64_t step) {
  return fe::graph::Tensor_attributes()
      .set_uid(uid)
      .set_data_type(ToCudnnType(spec.dtype))
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

// The frontend creates the outputs of an operation.
void SetOutput(const Tensor& made, const fe::graph::Tensor_attributes& as) {
  made->set_uid(as.get_uid())
      .set_data_type(as.get_data_type())
      .set_dim(as.get_dim())
      .set_stride(as.get_stride())
      .set_output(true);
}

// Attributes common to forward and backward.
template <typename Attributes>
Attributes MakeAttributes(const SdpaSpec& spec, fe::graph::Graph& graph) {
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
    auto attributes = MakeAttributes<fe::graph::SDPA_attributes>(spec, graph);
    const auto [y, lse] = graph.sdpa(q, k, v, attributes.set_generate_stats(true));
    SetOutput(y, Rows(spec, kY, row));
    SetOutput(lse, Sums(spec));
    return;
  }
  auto attributes = MakeAttributes<fe::graph::SDPA_backward_attributes>(spec, graph);
  const auto [dq, dk, dv] = graph.sdpa_backward(
      q, k, v, graph.tensor(Rows(spec, kY, row)), graph.tensor(Rows(spec, kDy, row)),
      graph.tensor(Sums(spec)), attributes.set_deterministic_algorithm(spec.deterministic));
  SetOutput(dq, Rows(spec, kDq, spec.step));
  SetOutput(dk, Rows(spec, kDk, spec.step));
  SetOutput(dv, Rows(spec, kDv, spec.step));
}

// [N, C, H, W] in the frontend's order of dimensions, channels last.
fe::graph::Tensor_attributes Images(Uid uid, fe::DataType_t type, std::int64_t images,
                                    std::int64_t channels, const ConvSize::Pair& size) {
  return fe::graph::Tensor_attributes()
      .set_uid(uid)
      .set_data_type(type)
      .set_dim({images, channels, size[0], size[1]})
      .set_stride({size[0] * size[1] * channels, 1, size[1] * channels, channels});
}

template <typename Attributes>
Attributes MakeAttributes(const ConvSize& size) {
  Attributes attributes;
  attributes.set_padding({size.padding[0], size.padding[1]})
      .set_stride({size.stride[0], size.stride[1]})
      .set_dilation({size.dilation[0], size.dilation[1]});
  return attributes;
}

void Describe(const ConvSpec& spec, fe::graph::Graph& graph) {
  const ConvSize& z = spec.size;
  const fe::DataType_t type = ToCudnnType(spec.dtype);
  const auto x = [&](Uid uid) { return Images(uid, type, z.images, z.in, z.image); };
  const auto y = [&](Uid uid) { return Images(uid, type, z.images, z.out, z.result); };
  const auto weight = [&](Uid uid, fe::DataType_t of) {
    return Images(uid, of, z.out, z.in_of_group(), z.kernel);
  };
  switch (spec.pass) {
    case ConvPass::kForward:
      return SetOutput(
          graph.conv_fprop(graph.tensor(x(kFirst)), graph.tensor(weight(kSecond, type)),
                           MakeAttributes<fe::graph::Conv_fprop_attributes>(z)),
          y(kOut));
    case ConvPass::kInputGradient:
      return SetOutput(
          graph.conv_dgrad(graph.tensor(y(kFirst)), graph.tensor(weight(kSecond, type)),
                           MakeAttributes<fe::graph::Conv_dgrad_attributes>(z)),
          x(kOut));
    case ConvPass::kWeightGradient: {  // cuDNN converts the result to f32
      const Tensor sums = graph.conv_wgrad(graph.tensor(y(kFirst)), graph.tensor(x(kSecond)),
                                           MakeAttributes<fe::graph::Conv_wgrad_attributes>(z));
      const fe::graph::Tensor_attributes as = weight(kOut, fe::DataType_t::FLOAT);
      sums->set_dim(as.get_dim()).set_stride(as.get_stride()).set_data_type(fe::DataType_t::FLOAT);
      SetOutput(graph.pointwise(sums, fe::graph::Pointwise_attributes().set_mode(
                                          fe::PointwiseMode_t::IDENTITY)),
                as);
      return;
    }
  }
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
  // Captured graphs do not keep the plan alive: see LibraryPlan.
  Parts(const CudnnApi& api, const CudnnTarget& target, DType dtype, std::string text)
      : what(std::move(text)), handle(target.handle) {
    fe::cudnn_dlhandle = api.library;  // LoadCudnn() returns the same library always
    graph.set_io_data_type(ToCudnnType(dtype))
        .set_intermediate_data_type(fe::DataType_t::FLOAT)
        .set_compute_data_type(fe::DataType_t::FLOAT)
        .set_sm_version(target.compute_capability)
        .set_cuda_graph_retention(fe::CudaGraphRetention_t::NONE);
  }

  std::string what;  // for messages
  cudnnHandle_t handle = nullptr;
  fe::graph::Graph graph;
  std::vector<fe::HeurMode_t> heuristics = {fe::HeurMode_t::A};
  std::vector<fe::NumericalNote_t> unwanted;  // of engines
  std::int64_t most_workspace = std::numeric_limits<std::int64_t>::max();
  bool with_lengths = false, backward = false;
  std::int64_t workspace_bytes = 0;
};

CudnnGraph::CudnnGraph(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}

CudnnGraph::~CudnnGraph() = default;

Result<std::unique_ptr<CudnnGraph>> CudnnGraph::Create(const CudnnApi& api,
                                                       const CudnnTarget& target,
                                                       const SdpaSpec& spec) {
  GACCD_RETURN_IF_ERROR(Check(spec));
  auto parts = std::make_unique<Parts>(api, target, spec.dtype, ToText(spec));
  parts->with_lengths = spec.lengths;
  parts->backward = spec.backward;
  Describe(spec, parts->graph);
  return Plan(target, std::move(parts));
}

Result<std::unique_ptr<CudnnGraph>> CudnnGraph::Create(const CudnnApi& api,
                                                       const CudnnTarget& target,
                                                       const ConvSpec& spec) {
  GACCD_RETURN_IF_ERROR(Check(spec));
  auto parts = std::make_unique<Parts>(api, target, spec.dtype, ToText(spec));
  parts->heuristics.push_back(fe::HeurMode_t::FALLBACK);
  parts->most_workspace = kMaxConvWorkspace;
  // 16-bit sums would be less accurate than the product of columns.
  parts->unwanted = {fe::NumericalNote_t::REDUCED_PRECISION_REDUCTION,
                     fe::NumericalNote_t::DOWN_CONVERT_INPUTS};
  if (spec.deterministic) parts->unwanted.push_back(fe::NumericalNote_t::NONDETERMINISTIC);
  Describe(spec, parts->graph);
  return Plan(target, std::move(parts));
}

// Asks cuDNN for engines.
Result<std::unique_ptr<CudnnGraph>> CudnnGraph::Plan(const CudnnTarget& target,
                                                     std::unique_ptr<Parts> parts) {
  fe::graph::Graph& graph = parts->graph;
  const auto attempt = [&](const auto& call) { return Try(parts->what, call); };
  GACCD_RETURN_IF_ERROR(attempt([&] { return SetDevice(target, graph); }));
  GACCD_RETURN_IF_ERROR(attempt([&] { return graph.validate(); }));
  GACCD_RETURN_IF_ERROR(attempt([&] { return graph.build_operation_graph(target.handle); }));
  GACCD_RETURN_IF_ERROR(attempt([&] { return graph.create_execution_plans(parts->heuristics); }));
  if (!parts->unwanted.empty()) graph.deselect_numeric_notes(parts->unwanted);
  graph.deselect_workspace_greater_than(parts->most_workspace);
  GACCD_RETURN_IF_ERROR(attempt([&] { return graph.check_support(); }));
  return std::unique_ptr<CudnnGraph>(new CudnnGraph(std::move(parts)));
}

Status CudnnGraph::Compile() {
  fe::graph::Graph& graph = parts_->graph;
  GACCD_RETURN_IF_ERROR(Try(parts_->what, [&] { return graph.build_plans(); }));
  return Try(parts_->what, [&] { return graph.get_workspace_size(parts_->workspace_bytes); });
}

std::int64_t CudnnGraph::workspace_bytes() const { return parts_->workspace_bytes; }

Status CudnnGraph::Enqueue(const SdpaPointers& p, void* workspace) {
  std::unordered_map<std::int64_t, void*> pointers = {{kQ, const_cast<void*>(p.q)},
                                                      {kK, const_cast<void*>(p.k)},
                                                      {kV, const_cast<void*>(p.v)},
                                                      {kY, p.y},
                                                      {kLse, p.lse}};
  if (parts_->with_lengths) pointers[kLengths] = const_cast<std::int32_t*>(p.lengths);
  if (parts_->backward) {
    pointers.insert({{kDy, const_cast<void*>(p.dy)}, {kDq, p.dq}, {kDk, p.dk}, {kDv, p.dv}});
  }
  return Try(parts_->what,
             [&] { return parts_->graph.execute(parts_->handle, pointers, workspace); });
}

Status CudnnGraph::Enqueue(const ConvPointers& p, void* workspace) {
  std::unordered_map<std::int64_t, void*> pointers = {
      {kFirst, const_cast<void*>(p.first)}, {kSecond, const_cast<void*>(p.second)}, {kOut, p.out}};
  return Try(parts_->what,
             [&] { return parts_->graph.execute(parts_->handle, pointers, workspace); });
}

}  // namespace gaccd
