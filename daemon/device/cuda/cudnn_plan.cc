#include <algorithm>
#include <list>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/cudnn_graph.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {
namespace {

constexpr std::int64_t kHalfBytes = 2;  // of bf16 and fp16

template <typename Spec, typename Pointers>
class CudnnPlan final : public LibraryPlan<Pointers> {
 public:
  CudnnPlan(const Spec& spec, CudnnGraph& graph) : spec_(spec), graph_(graph) {}

  [[nodiscard]] std::int64_t workspace_bytes() const override { return graph_.workspace_bytes(); }
  void Bind(const Pointers& pointers, void* workspace) override {
    pointers_ = pointers;
    workspace_ = workspace;
  }
  Status Run() override {
    if (!pointers_.has_value()) {
      return {ErrorKind::kInternal, StrCat(ToText(spec_), ": Run() before Bind()")};
    }
    return graph_.Enqueue(*pointers_, workspace_);
  }

 private:
  Spec spec_;
  CudnnGraph& graph_;  // owned by the library, which outlives its plans
  std::optional<Pointers> pointers_;
  void* workspace_ = nullptr;
};

// Runs the graph once on temporary memory, so that cuDNN loads everything.
Status RunOnce(CudnnGraph& graph, const SdpaSpec& spec, cudaStream_t stream) {
  const std::int64_t rows = spec.sequences * spec.length;
  const std::int64_t row = spec.heads * spec.width;
  const auto bytes = static_cast<std::size_t>(3 * rows * row * kHalfBytes);
  // q, k, v, y and dy are zeros and may overlap; `out` is for outputs.
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

Status RunOnce(CudnnGraph& graph, const ConvSpec& spec, cudaStream_t stream) {
  const ConvSize& z = spec.size;
  const auto allocate = [](std::int64_t elements, std::int64_t bytes) {
    return DeviceBuffer::Allocate(static_cast<std::size_t>(elements * bytes), "convolution");
  };
  const std::int64_t y = z.results() * z.out;
  const std::int64_t weight = z.out * z.columns();
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer of_x, allocate(z.image_elements(), kHalfBytes));
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer of_y, allocate(y, kHalfBytes));
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer of_weight, allocate(weight, sizeof(float)));
  GACCD_ASSIGN_OR_RETURN(const DeviceBuffer workspace, allocate(graph.workspace_bytes() + 1, 1));
  const bool forward = spec.pass == ConvPass::kForward;
  const bool by_weight = spec.pass == ConvPass::kWeightGradient;
  const ConvPointers pointers{.first = forward ? of_x.data() : of_y.data(),
                              .second = by_weight ? of_x.data() : of_weight.data(),
                              .out = forward     ? of_y.data()
                                     : by_weight ? of_weight.data()
                                                 : of_x.data()};
  GACCD_RETURN_IF_ERROR(graph.Enqueue(pointers, workspace.data()));
  return CudaStatus(cudaStreamSynchronize(stream), ToText(spec));
}

class CudnnLibrary final : public DnnLibrary {
 public:
  CudnnLibrary(const CudnnApi& api, CudaContext& context) : api_(api), context_(context) {}
  ~CudnnLibrary() override {
    attentions_.clear();
    convolutions_.clear();
    if (handle_ != nullptr) (void)api_.Destroy(handle_);
  }
  CudnnLibrary(const CudnnLibrary&) = delete;
  CudnnLibrary& operator=(const CudnnLibrary&) = delete;

  Status Start() {
    GACCD_RETURN_IF_ERROR(CudnnStatus(api_.Create(&handle_), "start cuDNN"));
    return CudnnStatus(api_.SetStream(handle_, context_.compute()), "give cuDNN its stream");
  }

  Result<std::unique_ptr<SdpaPlan>> Prepare(const SdpaSpec& spec) override {
    return PlanFor<SdpaPointers>(spec, attentions_);
  }
  Result<std::unique_ptr<ConvPlan>> Prepare(const ConvSpec& spec) override {
    return PlanFor<ConvPointers>(spec, convolutions_);
  }

 private:
  using Graph = Result<std::unique_ptr<CudnnGraph>>;
  template <typename Spec>
  struct Entry {
    Spec spec;
    Graph graph;
    bool ran = false;
  };
  template <typename Spec>
  using Known = std::list<Entry<Spec>>;

  // Equal layers of a model share a graph, or the reason why there is none. A lack of memory is not
  // cached, as memory may be freed later.
  template <typename Pointers, typename Spec>
  Result<std::unique_ptr<LibraryPlan<Pointers>>> PlanFor(const Spec& spec, Known<Spec>& all) {
    auto found = std::ranges::find(all, spec, &Entry<Spec>::spec);
    if (found == all.end()) found = all.insert(all.end(), {spec, Build(spec)});
    if (found->graph.ok() && !found->ran) {
      const Status ran = RunOnce(**found->graph, spec, context_.compute());
      found->ran = ran.ok();
      if (ran.kind() == ErrorKind::kOs) {
        context_.AddWarning(StrCat(ToText(spec), ": not tried: ", ran.message()));
      } else if (!ran.ok()) {
        return ran;
      }
    }
    if (!found->graph.ok()) {
      const Status why = found->graph.status();
      if (why.kind() == ErrorKind::kOs) all.erase(found);
      return why;
    }
    return std::unique_ptr<LibraryPlan<Pointers>>(
        std::make_unique<CudnnPlan<Spec, Pointers>>(spec, **found->graph));
  }

  template <typename Spec>
  Graph Build(const Spec& spec) {
    const CudnnTarget target{
        .handle = handle_, .device = {}, .compute_capability = context_.compute_capability()};
    GACCD_ASSIGN_OR_RETURN(auto graph, CudnnGraph::Create(api_, target, spec));
    GACCD_RETURN_IF_ERROR(graph->Compile());
    if constexpr (std::is_same_v<Spec, SdpaSpec>) {
      GACCD_RETURN_IF_ERROR(CheckWorkspace(spec, graph->workspace_bytes()));
    }
    return graph;
  }

  [[nodiscard]] Status CudnnStatus(cudnnStatus_t status, const char* what) const {
    if (status == CUDNN_STATUS_SUCCESS) return Status::Ok();
    return {ErrorKind::kUnavailable, StrCat(what, ": ", api_.GetErrorString(status))};
  }

  const CudnnApi& api_;
  CudaContext& context_;
  cudnnHandle_t handle_ = nullptr;
  Known<SdpaSpec> attentions_;
  Known<ConvSpec> convolutions_;
};

Result<std::unique_ptr<DnnLibrary>> OpenCudnn(CudaContext& context) {
  GACCD_ASSIGN_OR_RETURN(const CudnnApi* api, LoadCudnn());
  auto library = std::make_unique<CudnnLibrary>(*api, context);
  GACCD_RETURN_IF_ERROR(library->Start());
  return std::unique_ptr<DnnLibrary>(std::move(library));
}

}  // namespace

Result<DnnFactory> FindCudnn() {
  GACCD_RETURN_IF_ERROR(LoadCudnn().status());
  return DnnFactory{&OpenCudnn};
}

}  // namespace gaccd
