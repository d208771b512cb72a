// Selects the algorithm of a product: the first one offered, or the fastest on this GPU, tested
// with the product's epilogue, sizes and alignment on separate memory.
#pragma once

#include <functional>
#include <optional>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cublaslt_product.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/matmul_spec.h"

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

// Decides whether the epilogue of a product is faster than the product without it and a separate
// kernel.

// Compares the times of both products, which must have been prepared in this context (MatmulCuda),
// and of the kernel: `time_kernel` returns its microseconds. The result is kept with the choice for
// `fused` (MatmulChoices); then the kernel is not timed again. Empty if products are not timed,
// and, with a warning, if `time_kernel` runs out of memory (kOs). Waits for the GPU.
Result<std::optional<bool>> IsEpilogueFaster(CudaContext& context, const MatmulCudaSpec& fused,
                                             const MatmulCudaSpec& plain,
                                             const std::function<Result<double>()>& time_kernel);

// A heuristic without times. An epilogue that sums along k prevents splitting k: a C with few tiles
// would not fill the GPU.
[[nodiscard]] bool FillsTheGpu(const CudaContext& context, const MatmulCudaSpec& spec);

}  // namespace gaccd
