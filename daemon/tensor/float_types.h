// Which type a DType of floating-point values in GPU memory is: the one place where kernels are
// chosen by it.
#pragma once

#include "collectives/base/dtype.h"
#include "daemon/tensor/bf16.h"
#include "daemon/tensor/fp16.h"

namespace gaccd {

// f(T()): T is Bf16 or Fp16. REQUIRES: dtype is one of theirs.
template <typename F>
auto WithHalf(DType dtype, F&& f) {
  return dtype == DType::kFP16 ? f(Fp16()) : f(Bf16());
}

// f(T()): T is float, Bf16 or Fp16. REQUIRES: dtype is one of theirs.
template <typename F>
auto WithFloat(DType dtype, F&& f) {
  return dtype == DType::kF32 ? f(float()) : WithHalf(dtype, f);
}

}  // namespace gaccd
