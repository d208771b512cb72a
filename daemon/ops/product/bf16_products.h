// bf16 matrix products on the CPU: a pass over a recorded graph of f32 values.
#pragma once

#include "daemon/autograd/graph.h"

namespace gaccd {

// Linear functions, convolutions and their gradients (including bias gradients) read their matrices
// rounded to bf16 and sum in f32. A value read by several of them is rounded once, by the function
// that computes it if nothing else reads it. Attention rounds the operands of products while
// packing them. Everything else stays f32: parameters and their gradients, residual sums, losses.
// Call after Simplify(). kInternal if a function does not accept the rounded inputs.
Status RoundProductsToBf16(Graph& graph);

}  // namespace gaccd
