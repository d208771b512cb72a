// Kernels of the functions that autograd itself records (autograd/add.h).
#pragma once

#include "daemon/ops/function_row.h"

namespace gaccd {

CpuMake MakeAccumulateCpu, MakeAddCpu, MakeZerosCpu;
CudaMake MakeAccumulateCuda, MakeAddCuda, MakeZerosCuda;
inline constexpr FunctionRow kAutogradRows[] = {
    {"accumulate", MakeAccumulateCpu, MakeAccumulateCuda},
    {"add", MakeAddCpu, MakeAddCuda},
    {"zeros", MakeZerosCpu, MakeZerosCuda},
};

}  // namespace gaccd
