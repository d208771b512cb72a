// Convolutions on the GPU (formulas: conv2d.h) as functions that put kernels into a stream; rules
// as in kernels_cuda.h. In 16 bits the library of the context computes it (convolution.h). Without
// it a convolution in one group is a product of matrices, with the columns [N OH
// OW, C KH KW] of x: row m is what result m is a sum of, in the order of a row of the weight.
#pragma once

#include "daemon/device/cuda/convolution.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

// The weight [O, C / groups, KH, KW] as the library of convolutions takes it, channels last.
Status EnqueueChannelsLastWeight(const KernelStream& on, DType dtype, const ConvSize& size,
                                 const void* weight, void* to);
// dweight = its gradient, or dweight += it. `gradient` lies channels last, `channels` of them, of
// which those of dweight are the first.
Status EnqueueFromChannelsLast(const KernelStream& on, const ConvSize& size, const float* gradient,
                               std::int64_t channels, float* dweight, bool add);
// Rows of `channels` values become rows of `padded`, with zeros behind. REQUIRES: `padded` a
// multiple of kChannelsTogether, `to` aligned to 16 bytes.
Status EnqueuePadChannels(const KernelStream& on, DType dtype, const void* from, std::int64_t rows,
                          std::int64_t channels, std::int64_t padded, void* to);

// REQUIRES: one group.
Status EnqueueColumns(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                      void* columns);
// dx = the sums of what the columns, f32, have of each value.
Status EnqueueSumOfColumns(const KernelStream& on, DType dtype, const ConvSize& size,
                           const float* columns, void* dx);

// depthwise_cuda.cu. Of one channel a group: dweight [C, 1, KH, KW] from partial sums, whose memory
// in bytes it wants.
[[nodiscard]] std::int64_t DepthwiseScratchBytes(const KernelStream& on, const ConvSize& size);
Status EnqueueDepthwiseWeightGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                      const void* dy, const void* x, float* scratch, float* dweight,
                                      bool add);

// Without a product, for groups: a thread sums a value. weight and bias, which may be null, have
// the type `dtype`; a weight gradient is f32.
Status EnqueueConv2d(const KernelStream& on, DType dtype, const ConvSize& size, const void* x,
                     const void* weight, const void* bias, void* y);
Status EnqueueConv2dInputGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                  const void* dy, const void* weight, void* dx);
Status EnqueueConv2dWeightGradient(const KernelStream& on, DType dtype, const ConvSize& size,
                                   const void* dy, const void* x, float* dweight, bool add);

}  // namespace gaccd
