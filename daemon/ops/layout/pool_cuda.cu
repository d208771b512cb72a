// One row per sequence: one thread per written value.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/layout/pool_rows.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct SequenceSize {
  std::int64_t count = 0, length = 0, columns = 0;  // sequences, rows of each
};

// lengths may be null.
__device__ inline std::int64_t Known(const std::int32_t* lengths, std::int64_t b,
                                     std::int64_t length) {
  if (lengths == nullptr) return length;
  const std::int64_t known = lengths[b];
  return known < 0 ? 0 : known < length ? known : length;
}

// y [count, columns]; not kMean: the first row.
template <typename T, bool kMean>
__global__ void __launch_bounds__(kThreads)
    PoolKernel(const T* x, const std::int32_t* lengths, SequenceSize size, T* y) {
  for (std::int64_t i = GridIndex(); i < size.count * size.columns; i += GridStride()) {
    const std::int64_t b = i / size.columns;
    const T* from = x + b * size.length * size.columns + i % size.columns;
    if (!kMean) {
      y[i] = *from;
      continue;
    }
    const std::int64_t known = Known(lengths, b, size.length);
    float sum = 0;
#pragma unroll 4
    for (std::int64_t t = 0; t < known; ++t) sum += ToFloat(from[t * size.columns]);
    y[i] = FromFloat<T>(known > 0 ? sum / static_cast<float>(known) : 0.0F);
  }
}

// dx [count * length, columns].
template <typename T, bool kMean>
__global__ void __launch_bounds__(kThreads)
    PoolGradientKernel(const T* dy, const std::int32_t* lengths, SequenceSize size, T* dx) {
  const std::int64_t elements = size.count * size.length * size.columns;
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    const std::int64_t row = i / size.columns;
    const std::int64_t b = row / size.length;
    const std::int64_t known = kMean ? Known(lengths, b, size.length) : 1;
    const float value = ToFloat(dy[b * size.columns + i % size.columns]);
    dx[i] = FromFloat<T>(row % size.length < known ? value / static_cast<float>(known) : 0.0F);
  }
}

template <bool kMean>
KernelResult MakePool(const CudaRequest& request, const char* what) {
  const std::int64_t length = static_cast<const PoolRows&>(request.function).length();
  const Shape& y = request.outputs[0].shape;
  return MakeTypedCall(request, [what, on = request.on, size = SequenceSize{y[0], length, y[1]}](
                                    auto t, const Call& c) {
    using T = decltype(t);
    return LaunchForEach(PoolKernel<T, kMean>, on, size.count * size.columns, what, c.in<T>(0),
                         c.optional_in<std::int32_t>(1), size, c.out<T>(0));
  });
}

template <bool kMean>
KernelResult MakePoolGradient(const CudaRequest& request, const char* what) {
  const std::int64_t length = static_cast<const PoolRowsGradient&>(request.function).length();
  const Shape& dy = request.inputs[0].shape;
  const std::int64_t elements = dy[0] * length * dy[1];
  return MakeTypedCall(request, [what, on = request.on, elements,
                                 size = SequenceSize{dy[0], length, dy[1]}](auto t, const Call& c) {
    using T = decltype(t);
    return LaunchForEach(PoolGradientKernel<T, kMean>, on, elements, what, c.in<T>(0),
                         c.optional_in<std::int32_t>(1), size, c.out<T>(0));
  });
}

}  // namespace

KernelResult MakePoolRowsCuda(const CudaRequest& request) {
  return static_cast<const PoolRows&>(request.function).kind() == PoolKind::kMean
             ? MakePool<true>(request, "mean_rows")
             : MakePool<false>(request, "first_rows");
}
KernelResult MakePoolRowsGradientCuda(const CudaRequest& request) {
  return static_cast<const PoolRowsGradient&>(request.function).kind() == PoolKind::kMean
             ? MakePoolGradient<true>(request, "mean_rows_gradient")
             : MakePoolGradient<false>(request, "first_rows_gradient");
}

}  // namespace gaccd
