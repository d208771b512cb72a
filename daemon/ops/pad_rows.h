// PadRows: pads the rows of the graph's widest matrices for efficient access on a GPU. For example,
// 16-bit rows of a vocabulary of 50257 have 100514 bytes: without a stride they begin at odd
// multiples of 2 bytes and cannot be read 16 bytes at a time or by cuBLASLt's fast algorithms.
#pragma once

#include <cstdint>

#include "daemon/autograd/graph.h"

namespace gaccd {

// 16-bit products are fast if rows and columns are multiples of this: 16 bytes.
inline constexpr std::int64_t kRowsTogether = 8;

// The stride for rows of `columns` values: a multiple of 64 for 16-bit rows of at least 1024 values
// that are not a multiple of 16 bytes; otherwise 0.
[[nodiscard]] std::int64_t RowStrideFor(DType dtype, std::int64_t columns);

// Sets strides of activation matrices if every GPU kernel that accesses them supports strides
// (function_row.h). Input and output of an in-place function get the same stride or none. Gaps
// between rows have undefined content, except in gradients of logits, the only gradients with a
// stride: there zeros follow up to a multiple of kRowsTogether.
void PadRows(Graph& graph);

}  // namespace gaccd
