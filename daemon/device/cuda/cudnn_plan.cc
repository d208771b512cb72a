#include "daemon/device/cuda/cudnn_plan.h"

#include <list>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/cudnn_graph.h"

namespace gaccd {
namespace {

constexpr std::int64_t kHalfBytes = 2;  // of bf16 and fp16

class CudnnPlan final : public SdpaPlan {
 public:
  CudnnPlan(const SdpaSpec& spec, CudnnGraph& graph) : spec_(spec), graph_(graph) {}

  [[nodiscard]] std::int64_t workspace_bytes() const override { return graph_.workspace_bytes(); }
  void Bind(const SdpaPointers& pointers, void* workspace) override {
    pointers_ = pointers;
    workspace_ = workspace;
  }
  Status Run() override {
    if (pointers_.q == nullptr) {
      return {ErrorKind::kInternal, StrCat(ToText(spec_), ": Run() before Bind()")};
    }
    return graph_.Enqueue(pointers_, workspace_);
  }

 private:
  SdpaSpec spec_;
  CudnnGraph& graph_;  // of the library, which outlives its plans
  SdpaPointers pointers_;
  void* workspace_ = nullptr;
};

// Runs the graph on memory of its own: what cuDNN loads at the first run is then loaded.
Status RunOnce(CudnnGraph& graph, const SdpaSpec& spec, cudaStream_t stream) {
  const std::int64_t rows = spec.sequences * spec.length;
  const std::int64_t row = spec.heads * spec.width;
  const auto bytes = static_cast<std::size_t>(3 * rows * row * kHalfBytes);
  // Zeros are q, k, v, y and dy, which may lie in each other; `out` is what is written.
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer in, DeviceBuffer::Allocate(bytes, "attention"));
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer out, DeviceBuffer::Allocate(bytes, "attention"));
  GACCD_ASSIGN_OR_RETURN(
      const DeviceBuffer lse,
      DeviceBuffer::Allocate(static_cast<std::size_t>(rows * spec.heads) * sizeof(float),
                             "attention"));
  const std::vector<std::int32_t> full(static_cast<std::size_t>(spec.sequences),
                                       static_cast<std::int32_t>(spec.length));
  const std::size_t of_lengths = full.size() * sizeof(std::int32_t);
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer lengths,
                         DeviceBuffer::Allocate(of_lengths, "attention"));
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(lengths.data(), full.data(), of_lengths, cudaMemcpyHostToDevice, stream),
      "lengths"));
  GACCD_ASSIGN_OR_RETURN(
      const DeviceBuffer workspace,
      DeviceBuffer::Allocate(static_cast<std::size_t>(graph.workspace_bytes()) + 1, "attention"));
  const std::int64_t part = spec.step == row ? rows * row * kHalfBytes : row * kHalfBytes;
  auto* const to = out.as<std::byte>();
  const SdpaPointers pointers{.q = in.data(),
                              .k = in.as<std::byte>() + part,
                              .v = in.as<std::byte>() + 2 * part,
                              .lengths = lengths.as<std::int32_t>(),
                              .y = spec.backward ? in.data() : to,
                              .lse = lse.as<float>(),
                              .dy = in.data(),
                              .dq = to,
                              .dk = to + part,
                              .dv = to + 2 * part};
  GACCD_RETURN_IF_ERROR(graph.Enqueue(pointers, workspace.data()));
  return CudaStatus(cudaStreamSynchronize(stream), ToText(spec));
}

class CudnnLibrary final : public SdpaLibrary {
 public:
  CudnnLibrary(const CudnnApi& api, const CudaContext& context) : api_(api), context_(context) {}
  ~CudnnLibrary() override {
    known_.clear();
    if (handle_ != nullptr) (void)api_.Destroy(handle_);
  }
  CudnnLibrary(const CudnnLibrary&) = delete;
  CudnnLibrary& operator=(const CudnnLibrary&) = delete;

  Status Start() {
    GACCD_RETURN_IF_ERROR(StatusOf(api_.Create(&handle_), "start cuDNN"));
    return StatusOf(api_.SetStream(handle_, context_.compute()), "give cuDNN its stream");
  }

  // The layers of a model have equal attentions: they share a graph, or the reason why there is
  // none.
  Result<std::unique_ptr<SdpaPlan>> Prepare(const SdpaSpec& spec) override {
    for (auto& [known, graph] : known_) {
      if (known == spec) return PlanOf(spec, graph);
    }
    known_.emplace_back(spec, Build(spec));
    return PlanOf(spec, known_.back().second);
  }

 private:
  using Graph = Result<std::unique_ptr<CudnnGraph>>;

  static Result<std::unique_ptr<SdpaPlan>> PlanOf(const SdpaSpec& spec, Graph& graph) {
    if (!graph.ok()) return graph.status();
    return std::unique_ptr<SdpaPlan>(std::make_unique<CudnnPlan>(spec, **graph));
  }

  Graph Build(const SdpaSpec& spec) {
    const CudnnTarget target{
        .handle = handle_, .device = {}, .compute_capability = context_.compute_capability()};
    GACCD_ASSIGN_OR_RETURN(auto graph, CudnnGraph::Create(api_, target, spec));
    GACCD_RETURN_IF_ERROR(graph->Compile());
    GACCD_RETURN_IF_ERROR(CheckWorkspace(spec, graph->workspace_bytes()));
    GACCD_RETURN_IF_ERROR(RunOnce(*graph, spec, context_.compute()));
    return graph;
  }

  [[nodiscard]] Status StatusOf(cudnnStatus_t status, const char* what) const {
    if (status == CUDNN_STATUS_SUCCESS) return Status::Ok();
    return {ErrorKind::kUnavailable, StrCat(what, ": ", api_.GetErrorString(status))};
  }

  const CudnnApi& api_;
  const CudaContext& context_;
  cudnnHandle_t handle_ = nullptr;
  std::list<std::pair<SdpaSpec, Graph>> known_;
};

Result<std::unique_ptr<SdpaLibrary>> OpenCudnn(const CudaContext& context) {
  GACCD_ASSIGN_OR_RETURN(const CudnnApi* api, LoadCudnn());
  auto library = std::make_unique<CudnnLibrary>(*api, context);
  GACCD_RETURN_IF_ERROR(library->Start());
  return std::unique_ptr<SdpaLibrary>(std::move(library));
}

}  // namespace

Result<SdpaOpener> FindCudnn() {
  GACCD_RETURN_IF_ERROR(LoadCudnn().status());
  return SdpaOpener{&OpenCudnn};
}

}  // namespace gaccd
