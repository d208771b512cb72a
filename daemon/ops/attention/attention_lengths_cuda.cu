// Kernels before and after attention by a library (attention_cuda.h).
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/attention/attention_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

// Maximum number of blocks that clear the rows after the length of one sequence.
constexpr std::int64_t kMaxLengthParts = 64;
constexpr std::int64_t kElementsPerPart = 16 * kThreads;

__global__ void __launch_bounds__(kThreads)
    KnownLengthsKernel(const std::int32_t* lengths, std::int64_t sequences, std::int32_t most,
                       std::int32_t* known) {
  const std::int64_t b = GridIndex();
  if (b < sequences) known[b] = lengths[b] < 0 ? 0 : lengths[b] < most ? lengths[b] : most;
}

// A line is `length` pieces of `piece` elements; `lines` per sequence.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ClearTailsKernel(const std::int32_t* known, std::int64_t lines, std::int64_t length,
                     std::int64_t piece, std::int64_t parts, T* data) {
  const std::int64_t line = blockIdx.x / parts;
  const std::int64_t part = blockIdx.x % parts;
  const std::int64_t end = length * piece;
  T* const to = data + line * end;
  std::int64_t i = known[line / lines] * piece + part * kThreads + threadIdx.x;
  for (; i < end; i += parts * kThreads) to[i] = FromFloat<T>(0.0F);
}

template <typename T>
Status LaunchClearTails(const KernelStream& on, const AttentionSize& size,
                        const std::int32_t* known, std::int64_t lines, std::int64_t piece,
                        void* data) {
  const std::int64_t parts =
      std::clamp<std::int64_t>(size.length * piece / kElementsPerPart, 1, kMaxLengthParts);
  const auto blocks = static_cast<unsigned>(size.sequences * lines * parts);
  return Launch(ClearTailsKernel<T>, {blocks, kThreads}, on.stream, "attention", known, lines,
                size.length, piece, parts, static_cast<T*>(data));
}

}  // namespace

Status EnqueueKnownLengths(const KernelStream& on, const AttentionSize& size,
                           const std::int32_t* lengths, std::int32_t* known) {
  return Launch(KnownLengthsKernel, {BlocksFor(size.sequences, kThreads), kThreads}, on.stream,
                "attention", lengths, size.sequences, static_cast<std::int32_t>(size.length),
                known);
}

Status EnqueueClearRows(const KernelStream& on, const AttentionSize& size,
                        const std::int32_t* known, std::int64_t columns, void* rows) {
  // 0 has the same bits in fp16.
  return LaunchClearTails<Bf16>(on, size, known, 1, columns, rows);
}

Status EnqueueClearSums(const KernelStream& on, const AttentionSize& size,
                        const std::int32_t* known, float* lse) {
  return LaunchClearTails<float>(on, size, known, size.heads, 1, lse);
}

}  // namespace gaccd
