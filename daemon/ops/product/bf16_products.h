// Products in bf16 on the CPU: a pass over a recorded graph of f32 values.
#pragma once

#include "daemon/autograd/graph.h"

namespace gaccd {

// Linear functions, convolutions and their gradients, those of biases too, read their matrices
// rounded to bf16 and sum in f32; a value that several of them read is rounded once, by the
// function that makes it where nothing else reads it. Attention rounds what it multiplies as it
// packs it. All else stays f32: parameters and their gradients, sums of residuals, losses. To be
// called after Simplify(). kInternal when a function refuses what it then reads.
Status RoundProductsToBf16(Graph& graph);

}  // namespace gaccd
