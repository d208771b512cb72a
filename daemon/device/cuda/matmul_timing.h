// Selects the algorithm of a product: the first one offered, or the fastest on this GPU, tested
// with the product's epilogue, sizes and alignment on separate memory.
#pragma once

#include <optional>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cublaslt_product.h"

namespace gaccd {

// In this order:
//   1. the algorithm that this process has already chosen for an equal product;
//   2. unless IsTimed(): the first sound one offered (MatmulTrial);
//   3. the kept one (MatmulChoices), if cuBLASLt accepts it and it is sound;
//   4. the fastest sound one offered, timed on random data as a graph, as in the engine.
// 2, 3 and 4 run it at least once, on memory that is freed before the return, so that cuBLASLt
// loads everything before a capture. If that memory is not free, the first one offered is used
// untested, with a warning in MatmulChoices, unless MayLoseLastTerms(). Empty if none is offered,
// none is sound, or an untested one might lose terms. Waits for the GPU.
Result<std::optional<cublasLtMatmulAlgo_t>> ChooseAlgorithm(CublasLtProduct& product);

}  // namespace gaccd
