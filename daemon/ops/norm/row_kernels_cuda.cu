// Row functions: one warp per row, which reads its values again from the cache for every sum.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/norm/row_functions.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

LaunchShape ShapeFor(const CudaRequest& request) {
  return {request.on.Blocks(request.inputs[0].shape[0], kWarps), kThreads};
}

// The first row of a warp, and the columns of a lane.
__device__ inline std::int64_t FirstRow() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
}
__device__ inline std::int64_t RowStep() { return static_cast<std::int64_t>(gridDim.x) * kWarps; }

// The sum of value(d) over the columns of a row; result in all lanes.
template <typename Value>
__device__ inline float RowSum(std::int64_t columns, const Value& value) {
  float sum = 0;
#pragma unroll 4
  for (std::int64_t d = threadIdx.x % kWarp; d < columns; d += kWarp) sum += value(d);
  return WarpSum(sum);
}
template <typename Action>
__device__ inline void ForColumns(std::int64_t columns, const Action& action) {
#pragma unroll 4
  for (std::int64_t d = threadIdx.x % kWarp; d < columns; d += kWarp) action(d);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SoftmaxKernel(const T* x, std::int64_t rows, std::int64_t columns, T* y) {
  for (std::int64_t n = FirstRow(); n < rows; n += RowStep()) {
    const T* row = x + n * columns;
    T* to = y + n * columns;
    float top = -INFINITY;
    ForColumns(columns, [&top, row](std::int64_t d) { top = fmaxf(top, ToFloat(row[d])); });
    top = WarpMax(top);
    const float sum =
        RowSum(columns, [row, top](std::int64_t d) { return expf(ToFloat(row[d]) - top); });
    ForColumns(columns,
               [=](std::int64_t d) { to[d] = FromFloat<T>(expf(ToFloat(row[d]) - top) / sum); });
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    SoftmaxRowGradientKernel(const T* dy, const T* y, std::int64_t rows, std::int64_t columns,
                             T* dx) {
  for (std::int64_t n = FirstRow(); n < rows; n += RowStep()) {
    const T* g = dy + n * columns;
    const T* p = y + n * columns;
    T* to = dx + n * columns;
    const float product =
        RowSum(columns, [=](std::int64_t d) { return ToFloat(g[d]) * ToFloat(p[d]); });
    ForColumns(columns, [=](std::int64_t d) {
      to[d] = FromFloat<T>(ToFloat(p[d]) * (ToFloat(g[d]) - product));
    });
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    L2NormalizeKernel(const T* x, std::int64_t rows, std::int64_t columns, float eps, T* y,
                      float* norms) {
  for (std::int64_t n = FirstRow(); n < rows; n += RowStep()) {
    const T* row = x + n * columns;
    T* to = y + n * columns;
    const float norm =
        sqrtf(RowSum(columns, [row](std::int64_t d) { return ToFloat(row[d]) * ToFloat(row[d]); }));
    const float divisor = norm < eps ? eps : norm;
    ForColumns(columns, [=](std::int64_t d) { to[d] = FromFloat<T>(ToFloat(row[d]) / divisor); });
    if (threadIdx.x % kWarp == 0) norms[n] = norm;
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    L2NormalizeGradientKernel(const T* dy, const T* y, const float* norms, std::int64_t rows,
                              std::int64_t columns, float eps, T* dx) {
  for (std::int64_t n = FirstRow(); n < rows; n += RowStep()) {
    const T* g = dy + n * columns;
    const T* row = y + n * columns;
    T* to = dx + n * columns;
    const bool constant = norms[n] < eps;
    const float divisor = constant ? eps : norms[n];
    float product =
        RowSum(columns, [=](std::int64_t d) { return ToFloat(g[d]) * ToFloat(row[d]); });
    if (constant) product = 0;
    ForColumns(columns, [=](std::int64_t d) {
      to[d] = FromFloat<T>((ToFloat(g[d]) - ToFloat(row[d]) * product) / divisor);
    });
  }
}

}  // namespace

KernelResult MakeSoftmaxCuda(const CudaRequest& request) {
  return MakeTypedCall(request, [shape = ShapeFor(request), stream = request.on.stream,
                                 size = request.size()](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(SoftmaxKernel<T>, shape, stream, "softmax", c.in<T>(0), size.rows, size.columns,
                  c.out<T>(0));
  });
}

KernelResult MakeSoftmaxGradientCuda(const CudaRequest& request) {
  return MakeTypedCall(request, [shape = ShapeFor(request), stream = request.on.stream,
                                 size = request.size()](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(SoftmaxRowGradientKernel<T>, shape, stream, "softmax_gradient", c.in<T>(0),
                  c.in<T>(1), size.rows, size.columns, c.out<T>(0));
  });
}

KernelResult MakeL2NormalizeCuda(const CudaRequest& request) {
  const float eps = static_cast<const L2Normalize&>(request.function).eps();
  return MakeTypedCall(request, [shape = ShapeFor(request), stream = request.on.stream,
                                 size = request.size(), eps](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(L2NormalizeKernel<T>, shape, stream, "l2_normalize", c.in<T>(0), size.rows,
                  size.columns, eps, c.out<T>(0), c.out<float>(1));
  });
}

KernelResult MakeL2NormalizeGradientCuda(const CudaRequest& request) {
  const float eps = static_cast<const L2NormalizeGradient&>(request.function).eps();
  return MakeTypedCall(request, [shape = ShapeFor(request), stream = request.on.stream,
                                 size = request.size(), eps](auto t, const Call& c) {
    using T = decltype(t);
    return Launch(L2NormalizeGradientKernel<T>, shape, stream, "l2_normalize_gradient", c.in<T>(0),
                  c.in<T>(1), c.in<float>(2), size.rows, size.columns, eps, c.out<T>(0));
  });
}

}  // namespace gaccd
