// Products with a weight on the CPU, for the kernels of linear.h and linear_gelu.h.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"
#include "daemon/autograd/kernel.h"
#include "daemon/device/cpu/matmul.h"
#include "daemon/ops/cpu_kernels.h"

namespace gaccd {

struct WeightProduct {
  std::int64_t rows = 0;
  bool transpose = false;  // the weight is stored as [out, in]
  bool bias = false;
  bool multiply = false;   // MatmulSpec
  std::size_t output = 0;  // whose type is computed
  std::int64_t runs = 1;   // per run of the kernel
};

// The product of `rows` rows of input 0 with the weight, input 1, which is packed if that pays off.
Result<Matmul> PrepareWithWeight(const KernelRequest& request, const CpuEnvironment& environment,
                                 const WeightProduct& product);

}  // namespace gaccd
