// Functions that enqueue the convolution kernels on the GPU (formulas: conv2d.h); same conventions
// as in kernels_cuda.h. 16-bit convolutions are computed by cuDNN if it is available
// (dnn_library.h). Otherwise a convolution with one group is a matrix product of the weight with
// the im2col matrix of x, [N OH OW, C KH KW]: row m has the values of x that result m sums, in the
// order of a row of the weight.
#pragma once

#include "daemon/device/cuda/dnn_library.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

// Converts the weight [O, C / groups, KH, KW] to channels last, the layout that cuDNN reads.
Status EnqueueChannelsLastWeight(const KernelStream& on, DType dtype, const ConvSize& size,
                                 const void* weight, void* to);
// dweight = or += the first channels of `gradient`, which is channels last and has `channels`
// channels.
Status EnqueueFromChannelsLast(const KernelStream& on, const ConvSize& size, const float* gradient,
                               std::int64_t channels, float* dweight, bool add);
// Pads rows of `channels` values with zeros to rows of `padded` values. REQUIRES: `padded` is a
// multiple of kChannelsTogether, `to` is aligned to 16 bytes.
Status EnqueuePadChannels(const KernelStream& on, DType dtype, const void* from, std::int64_t rows,
                          std::int64_t channels, std::int64_t padded, void* to);

// columns = im2col(x). REQUIRES: one group.
Status EnqueueIm2col(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                     void* columns);
// dx = col2im(columns): for each value of x the sum over its copies in the f32 columns.
Status EnqueueCol2im(const KernelStream& on, DType dtype, const ConvSize& size,
                     const float* columns, void* dx);

// depthwise_cuda.cu. For one channel per group: dweight [C, 1, KH, KW] = or += the sum of partial
// sums in `scratch`, which has DepthwiseScratchBytes() bytes.
[[nodiscard]] std::int64_t DepthwiseScratchBytes(const KernelStream& on, const ConvSize& size);
Status EnqueueDepthwiseWeightGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                      const void* dy, const void* x, float* scratch, float* dweight,
                                      bool add);

// Direct convolutions without a matrix product, for several groups: one thread per result. weight
// and bias (may be null) have the type `dtype`; the weight gradient is f32.
Status EnqueueConv2d(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                     const void* weight, const void* bias, void* y);
Status EnqueueConv2dInputGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                  const void* dy, const void* weight, void* dx);
Status EnqueueConv2dWeightGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                   const void* dy, const void* x, float* dweight, bool add);

}  // namespace gaccd
