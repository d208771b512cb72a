// Functions that enqueue the attention kernels on the GPU (formulas: attention.h); same conventions
// as in kernels_cuda.h.
#pragma once

#include "daemon/ops/attention/attention.h"
#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

struct AttentionSize {
  // width: of a head, at most kMaxAttentionWidth
  std::int64_t sequences = 0, heads = 0, length = 0, width = 0;
  std::int64_t step = 0;  // between rows of q, k and v
  bool causal = false;
  bool all_rows = false;
};

// q, k, v, or their gradients: address of the first row and head of each.
template <typename Pointer>
struct AttentionParts {
  Pointer q, k, v;
};

// lengths may be null.
Status EnqueueAttention(const KernelStream& on, DType dtype, const AttentionSize& size,
                        const AttentionParts<const void*>& in, const std::int32_t* lengths, void* y,
                        float* lse);

// scratch: one float per head and row.
Status EnqueueAttentionGradient(const KernelStream& on, DType dtype, const AttentionSize& size,
                                const void* dy, const void* y, const float* lse,
                                const AttentionParts<const void*>& in, const std::int32_t* lengths,
                                const AttentionParts<void*>& out, float* scratch);

// Work around attention by a library (dnn_library.h), which requires lengths in range and leaves
// undefined values after them: known[b] = clamped lengths[b]; then zeros in the bf16 or fp16 rows
// [B T, columns] and in lse [B, H, T] after the length.
Status EnqueueKnownLengths(const KernelStream& on, const AttentionSize& size,
                           const std::int32_t* lengths, std::int32_t* known);
Status EnqueueClearRows(const KernelStream& on, const AttentionSize& size,
                        const std::int32_t* known, std::int64_t columns, void* rows);
Status EnqueueClearSums(const KernelStream& on, const AttentionSize& size,
                        const std::int32_t* known, float* lse);

}  // namespace gaccd
