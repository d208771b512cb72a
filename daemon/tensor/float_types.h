// Maps a floating-point DType of values in GPU memory to a C++ type, to select kernels.
#pragma once

#include "collectives/base/dtype.h"
#include "daemon/tensor/bf16.h"
#include "daemon/tensor/fp16.h"

namespace gaccd {

// Calls f(T()) with T Bf16 or Fp16. REQUIRES: dtype is kBF16 or kFP16.
template <typename F>
auto WithHalf(DType dtype, F&& f) {
  return dtype == DType::kFP16 ? f(Fp16()) : f(Bf16());
}

// Calls f(T()) with T float, Bf16 or Fp16. REQUIRES: dtype is kF32, kBF16 or kFP16.
template <typename F>
auto WithFloat(DType dtype, F&& f) {
  return dtype == DType::kF32 ? f(float()) : WithHalf(dtype, f);
}

}  // namespace gaccd
