// Makers of attention kernels: f32 uses the kernels of attention_cuda.h, the reference; bf16 and
// fp16 use the library of the context, if there is one that supports the sizes.
#include <span>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/ops/attention/attention.h"
#include "daemon/ops/attention/attention_cuda.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cuda_request.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;
using PlanPointer = std::unique_ptr<SdpaPlan>;

// y: a value with the shape of the output.
AttentionSize SizeOf(const AttentionOptions& options, const ValueSpec& y, const ValueSpec& q) {
  return {.sequences = y.shape[0] / options.length,
          .heads = options.heads,
          .length = options.length,
          .width = y.shape[1] / options.heads,
          .step = q.shape[1],
          .causal = options.causal,
          .all_rows = options.all_rows};
}

// From one packed array, or three.
template <typename Pointer>
AttentionParts<Pointer> SplitIntoParts(std::span<void* const> arrays, bool packed,
                                       const AttentionSize& size, DType dtype) {
  if (!packed) return {arrays[0], arrays[1], arrays[2]};
  auto* first = static_cast<char*>(arrays[0]);
  const auto bytes = size.heads * size.width * static_cast<std::int64_t>(SizeOf(dtype));
  return {first, first + bytes, first + 2 * bytes};
}

const std::int32_t* LengthsInput(std::span<void* const> inputs) {
  return HasAttentionLengths(inputs.size()) ? static_cast<const std::int32_t*>(inputs.back())
                                            : nullptr;
}

// The spec for the library. inputs: number of inputs of Attention.
SdpaSpec MakeSdpaSpec(const CudaRequest& request, const AttentionSize& size, std::size_t inputs,
                      bool backward) {
  return {.dtype = request.dtype(),
          .backward = backward,
          .deterministic = request.context.numerics().deterministic,
          .sequences = size.sequences,
          .heads = size.heads,
          .length = size.length,
          .width = size.width,
          .step = size.step,
          .causal = size.causal,
          .lengths = HasAttentionLengths(inputs)};
}

// The library's plan; null if our own kernel must be used, with a warning if there is a library.
Result<PlanPointer> PlanFor(const CudaRequest& request, const SdpaSpec& spec, bool all_rows) {
  if (spec.dtype == DType::kF32 || spec.sequences == 0) return PlanPointer();
  const auto own_kernel = [&](const Status& why) -> Result<PlanPointer> {
    if (why.kind() != ErrorKind::kUnavailable) return why;
    request.context.AddWarning(StrCat(kOwnAttention, why.message()));
    return PlanPointer();
  };
  const Result<DnnLibrary*> library = request.context.dnn();
  if (!library.ok()) return own_kernel(library.status());
  if (*library == nullptr) return PlanPointer();
  if (all_rows && spec.lengths) {
    return own_kernel({ErrorKind::kUnavailable, "rows beyond the lengths are computed"});
  }
  Result<PlanPointer> plan = (*library)->Prepare(spec);
  return plan.ok() ? std::move(plan) : own_kernel(plan.status());
}

// Attention or its gradient by the library. Scratch: its workspace, then the lengths.
class LibraryKernel : public Kernel {
 public:
  LibraryKernel(PlanPointer plan, const CudaRequest& request, const AttentionSize& size,
                bool backward)
      : plan_(std::move(plan)),
        on_(request.on),
        dtype_(request.dtype()),
        size_(size),
        backward_(backward) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return LengthsOffset() + size_.sequences * static_cast<std::int64_t>(sizeof(std::int32_t));
  }
  void Bind(const Operands& operands) override {
    std::span<void* const> forward = operands.inputs;
    if (backward_) forward = forward.subspan(3);
    lengths_ = LengthsInput(forward);
    known_ =
        reinterpret_cast<std::int32_t*>(static_cast<char*>(operands.scratch) + LengthsOffset());
    const bool packed = IsPackedAttention(forward.size());
    const auto in = SplitIntoParts<const void*>(forward, packed, size_, dtype_);
    pointers_ = {.q = in.q, .k = in.k, .v = in.v, .lengths = known_};
    rows_.assign(operands.outputs.begin(), operands.outputs.end());
    if (backward_) {
      const auto out = SplitIntoParts<void*>(operands.outputs, packed, size_, dtype_);
      pointers_.dy = operands.inputs[0];
      pointers_.y = operands.inputs[1];
      pointers_.lse = static_cast<float*>(operands.inputs[2]);
      pointers_.dq = out.q;
      pointers_.dk = out.k;
      pointers_.dv = out.v;
    } else {
      pointers_.y = operands.outputs[0];
      pointers_.lse = operands.out<float>(1);
      rows_.pop_back();
    }
    plan_->Bind(pointers_, operands.scratch);
  }
  Status Run(OutputMask) override {
    if (lengths_ == nullptr) return plan_->Run();
    GACCD_RETURN_IF_ERROR(EnqueueKnownLengths(on_, size_, lengths_, known_));
    GACCD_RETURN_IF_ERROR(plan_->Run());
    const std::int64_t columns = backward_ ? size_.step : size_.heads * size_.width;
    for (void* const rows : rows_) {
      GACCD_RETURN_IF_ERROR(EnqueueClearRows(on_, size_, known_, columns, rows));
    }
    return backward_ ? Status::Ok() : EnqueueClearSums(on_, size_, known_, pointers_.lse);
  }

 private:
  [[nodiscard]] std::int64_t LengthsOffset() const {
    constexpr std::int64_t kAlignment = 16;
    return (plan_->workspace_bytes() + kAlignment - 1) / kAlignment * kAlignment;
  }

  PlanPointer plan_;
  KernelStream on_;
  DType dtype_;
  AttentionSize size_;
  bool backward_;
  const std::int32_t* lengths_ = nullptr;
  std::int32_t* known_ = nullptr;
  SdpaPointers pointers_;
  std::vector<void*> rows_;  // written, of dtype_
};

}  // namespace

KernelResult MakeAttentionCuda(const CudaRequest& request) {
  const auto& options = static_cast<const Attention&>(request.function).options();
  const AttentionSize size = SizeOf(options, request.outputs[0], request.inputs[0]);
  GACCD_RETURN_IF_ERROR(CheckAttentionOnGpu(request.function, request.inputs));
  GACCD_ASSIGN_OR_RETURN(PlanPointer plan,
                         PlanFor(request, MakeSdpaSpec(request, size, request.inputs.size(), false),
                                 options.all_rows));
  if (plan != nullptr) {
    return MakeKernel<LibraryKernel>(std::move(plan), request, size, /*backward=*/false);
  }
  return MakeCall(request, [on = request.on, dtype = request.dtype(), size](const Call& c) {
    const bool packed = IsPackedAttention(c.inputs.size());
    return EnqueueAttention(on, dtype, size,
                            SplitIntoParts<const void*>(c.inputs, packed, size, dtype),
                            LengthsInput(c.inputs), c.outputs[0], c.out<float>(1));
  });
}

KernelResult MakeAttentionGradientCuda(const CudaRequest& request) {
  const auto& options = static_cast<const AttentionGradient&>(request.function).options();
  const AttentionSize size = SizeOf(options, request.inputs[0], request.inputs[3]);
  GACCD_ASSIGN_OR_RETURN(
      PlanPointer plan,
      PlanFor(request, MakeSdpaSpec(request, size, request.inputs.size() - 3, true),
              options.all_rows));
  if (plan != nullptr) {
    return MakeKernel<LibraryKernel>(std::move(plan), request, size, /*backward=*/true);
  }
  return MakeCall(
      request,
      [on = request.on, dtype = request.dtype(), size](const Call& c) {
        const std::span<void* const> forward = std::span(c.inputs).subspan(3);
        const bool packed = IsPackedAttention(forward.size());
        return EnqueueAttentionGradient(
            on, dtype, size, c.inputs[0], c.inputs[1], c.in<float>(2),
            SplitIntoParts<const void*>(forward, packed, size, dtype), LengthsInput(forward),
            SplitIntoParts<void*>(c.outputs, packed, size, dtype), static_cast<float*>(c.scratch));
      },
      static_cast<std::size_t>(size.sequences * size.heads * size.length) * sizeof(float));
}

}  // namespace gaccd
