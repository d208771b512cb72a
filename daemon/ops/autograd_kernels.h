// Kernels of the functions that autograd itself records (autograd/add.h).
#pragma once

#include "daemon/ops/function_row.h"

namespace gaccd {

KernelResult MakeAccumulateCpu(const KernelRequest& request);
KernelResult MakeAddCpu(const KernelRequest& request);
KernelResult MakeZerosCpu(const KernelRequest& request);
KernelResult MakeAccumulateCuda(const CudaRequest& request);
KernelResult MakeAddCuda(const CudaRequest& request);
KernelResult MakeZerosCuda(const CudaRequest& request);
inline constexpr FunctionRow kAutogradRows[] = {
    {"accumulate", MakeAccumulateCpu, MakeAccumulateCuda},
    {"add", MakeAddCpu, MakeAddCuda},
    {"zeros", MakeZerosCpu, MakeZerosCuda},
};

}  // namespace gaccd
