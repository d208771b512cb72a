// The convolutions of the stand-in library (sdpa_standin.h): loops over the formula of
// daemon/ops/image/conv2d.h, sums in f64; NaN in the workspace and in what it writes, until it
// does.
#pragma once

#include <cuda_runtime.h>

#include <memory>

#include "daemon/device/cuda/convolution.h"

namespace gaccd::standin {

[[nodiscard]] std::unique_ptr<ConvPlan> MakeConvPlan(const ConvSpec& spec, cudaStream_t stream);

}  // namespace gaccd::standin
