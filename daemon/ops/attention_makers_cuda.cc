// The makers of the kernels of attention_cuda.h.
#include <span>

#include "daemon/ops/attention.h"
#include "daemon/ops/attention_cuda.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cuda_request.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// y: what has the shape of the output.
AttentionSize SizeOf(const AttentionOptions& options, const ValueSpec& y, const ValueSpec& q) {
  return {.sequences = y.shape[0] / options.length,
          .heads = options.heads,
          .length = options.length,
          .width = y.shape[1] / options.heads,
          .step = q.shape[1],
          .causal = options.causal};
}

// Of one packed array, or three.
template <typename Pointer>
AttentionParts<Pointer> PartsOf(std::span<void* const> arrays, bool packed,
                                const AttentionSize& size, DType dtype) {
  if (!packed) return {arrays[0], arrays[1], arrays[2]};
  auto* first = static_cast<char*>(arrays[0]);
  const auto bytes = size.heads * size.width * static_cast<std::int64_t>(SizeOf(dtype));
  return {first, first + bytes, first + 2 * bytes};
}

const std::int32_t* LengthsOf(std::span<void* const> inputs) {
  return HasAttentionLengths(inputs.size()) ? static_cast<const std::int32_t*>(inputs.back())
                                            : nullptr;
}

}  // namespace

KernelResult MakeAttentionCuda(const CudaRequest& request) {
  const auto& options = static_cast<const Attention&>(request.function).options();
  const AttentionSize size = SizeOf(options, request.outputs[0], request.inputs[0]);
  GACCD_RETURN_IF_ERROR(CheckAttentionOnGpu(request.function, request.inputs));
  return std::unique_ptr<Kernel>(std::make_unique<CallKernel>(
      request, [on = request.on, dtype = request.dtype(), size](const Call& c) {
        const bool packed = IsPackedAttention(c.inputs.size());
        return EnqueueAttention(on, dtype, size,
                                PartsOf<const void*>(c.inputs, packed, size, dtype),
                                LengthsOf(c.inputs), c.outputs[0], c.out<float>(1));
      }));
}

KernelResult MakeAttentionGradientCuda(const CudaRequest& request) {
  const auto& options = static_cast<const AttentionGradient&>(request.function).options();
  const AttentionSize size = SizeOf(options, request.inputs[0], request.inputs[3]);
  return std::unique_ptr<Kernel>(std::make_unique<CallKernel>(
      request,
      [on = request.on, dtype = request.dtype(), size](const Call& c) {
        const std::span<void* const> forward = std::span(c.inputs).subspan(3);
        const bool packed = IsPackedAttention(forward.size());
        return EnqueueAttentionGradient(
            on, dtype, size, c.inputs[0], c.inputs[1], c.in<float>(2),
            PartsOf<const void*>(forward, packed, size, dtype), LengthsOf(forward),
            PartsOf<void*>(c.outputs, packed, size, dtype), static_cast<float*>(c.scratch));
      },
      static_cast<std::size_t>(size.sequences * size.heads * size.length) * sizeof(float)));
}

}  // namespace gaccd
