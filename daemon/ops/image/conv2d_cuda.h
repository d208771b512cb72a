// Convolutions on the GPU (formulas: conv2d.h) as functions that put kernels into a stream; rules
// as in kernels_cuda.h. A convolution in one group is a product of matrices, with the columns [N OH
// OW, C KH KW] of x: row m is what result m is a sum of, in the order of a row of the weight.
#pragma once

#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

// See conv2d.h.
struct ConvSize {
  std::int64_t images = 0, in = 0, out = 0, groups = 1;  // N, C, O
  ImagePair image{}, result{}, kernel{}, stride{}, padding{}, dilation{};

  [[nodiscard]] std::int64_t results() const { return images * result[0] * result[1]; }
  [[nodiscard]] std::int64_t columns() const { return in / groups * kernel[0] * kernel[1]; }
  [[nodiscard]] std::int64_t image_elements() const { return images * image[0] * image[1] * in; }
  // The columns of x are x.
  [[nodiscard]] bool is_product() const {
    return kernel == ImagePair{1, 1} && stride == ImagePair{1, 1} && padding == ImagePair{0, 0};
  }
};

// REQUIRES: one group.
Status EnqueueColumns(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                      void* columns);
// dx = the sums of what the columns, f32, have of each value.
Status EnqueueSumOfColumns(const KernelStream& on, DType dtype, const ConvSize& size,
                           const float* columns, void* dx);

// Without a product, for groups: a thread sums a value. weight and bias, which may be null, have
// the type `dtype`; a weight gradient is f32.
Status EnqueueConv2d(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                     const void* weight, const void* bias, void* y);
Status EnqueueConv2dInputGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                  const void* dy, const void* weight, void* dx);
Status EnqueueConv2dWeightGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                   const void* dy, const void* x, float* dweight, bool add);

}  // namespace gaccd
