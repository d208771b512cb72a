// Whether the epilogue of a product is faster than what it replaces: the product without it, and a
// kernel.
#pragma once

#include <functional>
#include <optional>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/matmul_spec.h"

namespace gaccd {

// By the times of both products, which were prepared before in this context (MatmulCuda), and of
// the kernel: `time_kernel` gives its microseconds. The answer is kept with the choice for `fused`
// (MatmulChoices), and then the kernel is not timed. Nothing where products are not timed, and,
// with a warning, where `time_kernel` has no memory (kOs). Waits for the GPU.
Result<std::optional<bool>> IsEpilogueFaster(CudaContext& context, const MatmulCudaSpec& fused,
                                             const MatmulCudaSpec& plain,
                                             const std::function<Result<double>()>& time_kernel);

// Without times. An epilogue that sums along k leaves no room to split k: C in few tiles would not
// fill the GPU.
[[nodiscard]] bool FillsTheGpu(const CudaContext& context, const MatmulCudaSpec& spec);

}  // namespace gaccd
