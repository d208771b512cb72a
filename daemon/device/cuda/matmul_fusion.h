// Decides whether the epilogue of a product is faster than the product without it and a separate
// kernel.
#pragma once

#include <functional>
#include <optional>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/matmul_spec.h"

namespace gaccd {

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
