// The kernels of linear.h on the GPU: makers for cuda_kernels.cc.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/autograd/kernel.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

// Where cuBLASLt cannot add bias and ReLU, or sums of columns, in a product's own pass, a kernel of
// its own does it, and a line of `notes` says so.
KernelResult MakeLinearCuda(const KernelRequest& request, CudaContext& context,
                            const KernelStream& on, std::vector<std::string>& notes);
KernelResult MakeLinearInputGradientCuda(const KernelRequest& request, CudaContext& context);
KernelResult MakeLinearWeightGradientCuda(const KernelRequest& request, CudaContext& context);
KernelResult MakeLinearWeightBiasGradientCuda(const KernelRequest& request, CudaContext& context,
                                              const KernelStream& on,
                                              std::vector<std::string>& notes);

}  // namespace gaccd
