// Attention alone, causal, as a GPT has it: by the library, by its deterministic gradient, by
// gaccd's own kernels.
#include <algorithm>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/ops/attention/attention_cuda.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {
namespace {

constexpr int kAttentionRepeats = 20;

class AttentionCase final : public GpuCase {
 public:
  AttentionCase(std::unique_ptr<CudaContext> context, const SdpaSpec& spec)
      : context_(std::move(context)), spec_(spec) {}

  // by_library: else by gaccd's own kernel.
  Status Prepare(bool by_library) {
    const std::int64_t rows = spec_.sequences * spec_.length;
    const std::int64_t width = spec_.heads * spec_.width;
    const auto values = [](std::int64_t count) { return static_cast<std::size_t>(count) * 2; };
    for (DeviceBuffer* packed : {&qkv_, &dqkv_}) {
      GACCD_ASSIGN_OR_RETURN(*packed, DeviceBuffer::Allocate(values(rows * 3 * width), "qkv"));
      GACCD_RETURN_IF_ERROR(FillRandom(*packed, spec_.dtype));
    }
    for (DeviceBuffer* result : {&y_, &dy_}) {
      GACCD_ASSIGN_OR_RETURN(*result, DeviceBuffer::Allocate(values(rows * width), "y"));
      GACCD_RETURN_IF_ERROR(FillRandom(*result, spec_.dtype));
    }
    const auto sums = static_cast<std::size_t>(rows * spec_.heads) * sizeof(float);
    GACCD_ASSIGN_OR_RETURN(lse_, DeviceBuffer::Allocate(sums, "lse"));
    std::size_t scratch = sums;
    if (by_library) {
      GACCD_ASSIGN_OR_RETURN(DnnLibrary* const library, context_->dnn());
      if (library == nullptr) return {ErrorKind::kUnavailable, "no library of attention"};
      // Forward first: its y and lse are what the gradient reads.
      SdpaSpec forward = spec_;
      forward.backward = false;
      GACCD_ASSIGN_OR_RETURN(forward_, library->Prepare(forward));
      GACCD_ASSIGN_OR_RETURN(plan_, library->Prepare(spec_));
      scratch =
          static_cast<std::size_t>(std::max(forward_->workspace_bytes(), plan_->workspace_bytes()));
    }
    GACCD_ASSIGN_OR_RETURN(scratch_, DeviceBuffer::Allocate(scratch, "workspace"));
    if (!by_library) return Enqueue(/*backward=*/false);
    forward_->Bind(Pointers(/*backward=*/false), scratch_.data());
    plan_->Bind(Pointers(spec_.backward), scratch_.data());
    return forward_->Run();
  }

  Result<double> Run() override {
    return MedianSeconds(context_->compute(), kAttentionRepeats, [this] {
      return plan_ != nullptr ? plan_->Run() : Enqueue(spec_.backward);
    });
  }
  // Two products of T x T x D forward, five backward; half of it for a causal one.
  [[nodiscard]] double proof() const override {
    const auto pairs = static_cast<double>(spec_.length) * static_cast<double>(spec_.length) / 2;
    return (spec_.backward ? 5 : 2) * 2 * pairs *
           static_cast<double>(spec_.sequences * spec_.heads * spec_.width);
  }

 private:
  template <typename Pointer>
  [[nodiscard]] AttentionParts<Pointer> Parts(const DeviceBuffer& packed) const {
    char* const first = packed.as<char>();
    const std::int64_t bytes = spec_.heads * spec_.width * 2;
    return {first, first + bytes, first + 2 * bytes};
  }
  [[nodiscard]] SdpaPointers Pointers(bool backward) const {
    const auto in = Parts<const void*>(qkv_);
    SdpaPointers pointers{.q = in.q, .k = in.k, .v = in.v, .y = y_.data(), .lse = lse_.as<float>()};
    if (!backward) return pointers;
    const auto out = Parts<void*>(dqkv_);
    pointers.dy = dy_.data();
    pointers.dq = out.q;
    pointers.dk = out.k;
    pointers.dv = out.v;
    return pointers;
  }
  Status Enqueue(bool backward) {
    const KernelStream on{context_->compute(), context_->multiprocessors(), {}};
    const AttentionSize size{spec_.sequences, spec_.heads, spec_.length,
                             spec_.width,     spec_.step,  spec_.causal};
    if (!backward) {
      return EnqueueAttention(on, spec_.dtype, size, Parts<const void*>(qkv_), nullptr, y_.data(),
                              lse_.as<float>());
    }
    return EnqueueAttentionGradient(on, spec_.dtype, size, dy_.data(), y_.data(), lse_.as<float>(),
                                    Parts<const void*>(qkv_), nullptr, Parts<void*>(dqkv_),
                                    scratch_.as<float>());
  }

  std::unique_ptr<CudaContext> context_;  // outlives the plans
  SdpaSpec spec_;
  std::unique_ptr<SdpaPlan> forward_, plan_;  // null: by the own kernel
  DeviceBuffer qkv_, dqkv_, y_, dy_, lse_, scratch_;
};

}  // namespace

MadeCase MakeAttentionCase(const CaseArguments& arguments) {
  SdpaSpec spec{.causal = true};
  GACCD_ASSIGN_OR_RETURN(spec.sequences, arguments.Count("sequences"));
  GACCD_ASSIGN_OR_RETURN(spec.length, arguments.Count("length"));
  GACCD_ASSIGN_OR_RETURN(spec.heads, arguments.Count("heads"));
  GACCD_ASSIGN_OR_RETURN(spec.width, arguments.Count("width"));
  GACCD_ASSIGN_OR_RETURN(spec.backward, arguments.Either("part", "forward", "gradient"));
  GACCD_ASSIGN_OR_RETURN(const bool fp16, arguments.Either("precision", "bf16", "fp16"));
  GACCD_ASSIGN_OR_RETURN(spec.deterministic, arguments.Either("bits", "any", "deterministic"));
  GACCD_ASSIGN_OR_RETURN(const bool own, arguments.Either("by", "library", "kernel"));
  spec.dtype = fp16 ? DType::kFP16 : DType::kBF16;
  spec.step = 3 * spec.heads * spec.width;
  CudaContextOptions options{.numerics = {.deterministic = spec.deterministic},
                             .cublaslt = CublasLtOfBench()};
  GACCD_ASSIGN_OR_RETURN(options.dnn, DnnOfBench());
  GACCD_ASSIGN_OR_RETURN(auto context, CudaContext::Create(options));
  auto made = std::make_unique<AttentionCase>(std::move(context), spec);
  GACCD_RETURN_IF_ERROR(made->Prepare(!own));
  return CasePtr(std::move(made));
}

}  // namespace gaccd
