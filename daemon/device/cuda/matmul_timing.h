// Which of the offered algorithms a product uses: the first, or the fastest on this GPU, tried with
// the product's own epilogue, sizes and alignment, on memory of its own.
#pragma once

#include <optional>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cublaslt_product.h"

namespace gaccd {

// In this order:
//   1. the algorithm this process has already chosen for an equal product;
//   2. unless IsTimed(): the first one offered that is sound (MatmulTrial);
//   3. the kept one (MatmulChoices), if cuBLASLt takes it and it is sound;
//   4. the fastest sound one of those offered, timed on random data as a graph, which is how the
//      engine replays them.
// 2, 3, 4 run it at least once, on memory that is freed before the return: what cuBLASLt loads at
// the first call is then loaded, and a later capture sees no surprise. Where that memory is not
// free, the first one offered is taken untried, with a warning in MatmulChoices.
// Nothing when none is offered or none is sound. Waits for the GPU.
Result<std::optional<cublasLtMatmulAlgo_t>> ChooseAlgorithm(CublasLtProduct& product);

}  // namespace gaccd
