// A GPU for op_gradients.h: graphs with collective functions run on it. Built with CUDA only.
#pragma once

#include "daemon/device/cuda/cublaslt_api.h"
#include "tests/ranks/op_gradients.h"

namespace gaccd::tests {

// cublaslt: null: the library of this machine.
MakeDevice GpuGradientDevice(int gpu, const CublasLtApi* cublaslt = nullptr);

}  // namespace gaccd::tests
