// Shared by the kernels of products with a weight on the GPU: linear_cuda.cc, linear_gelu_cuda.cc.
#pragma once

#include "daemon/device/cuda/matmul_cuda.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/product/linear.h"

namespace gaccd {

// The address of a weight or bias in `dtype`: f32, or its 16-bit copy. null: null. kInternal: there
// is no copy.
Result<const void*> ParameterAs(const CudaContext& context, const void* parameter, DType dtype);

// The products of linear (with a bias if there are 3 inputs) and of linear_input_gradient, without
// fused operations.
[[nodiscard]] MatmulCudaSpec LinearSpec(const CudaRequest& request, WeightOrder order);
[[nodiscard]] MatmulCudaSpec LinearInputGradientSpec(const CudaRequest& request, WeightOrder order);

}  // namespace gaccd
