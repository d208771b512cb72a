// PadRows: rows of the graph's widest matrices at addresses that a GPU reads well. A vocabulary of
// 50257 in 16 bits has rows of 100514 bytes: without a stride they lie at odd multiples of 2 bytes,
// where neither 16 bytes at a time nor cuBLASLt's fast algorithms can read them.
#pragma once

#include <cstdint>

#include "daemon/autograd/graph.h"

namespace gaccd {

// Products of 16 bits are fast where rows and columns are multiples of this: 16 bytes.
inline constexpr std::int64_t kRowsTogether = 8;

// What rows of so many values get: a multiple of 64, for those of 16 bits that are at least 1024
// values long and no multiple of 16 bytes; else 0.
[[nodiscard]] std::int64_t RowStrideFor(DType dtype, std::int64_t columns);

// Gives it to the matrices among the activations, where every kernel of the GPU that reads or
// writes them takes a stride (function_row.h). What runs in place gets one stride or none. Between
// two rows lies what kernels leave there; only behind those of a gradient of logits, the one
// gradient with a stride, zeros follow up to a multiple of kRowsTogether.
void PadRows(Graph& graph);

}  // namespace gaccd
