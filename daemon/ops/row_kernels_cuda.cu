// Functions of rows: a warp takes a row, whose values it reads again from the cache for every sum.
#include <float.h>

#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/sequence_kernels_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kWarps = kThreads / kWarp;
constexpr unsigned kBlocksPerMultiprocessor = 8;

LaunchShape ShapeFor(const KernelStream& on, std::int64_t rows) {
  const auto most = static_cast<unsigned>(on.multiprocessors) * kBlocksPerMultiprocessor;
  return {std::min(most, BlocksFor(rows, kWarps)), kThreads};
}

// The rows of a warp, and the columns of a lane.
__device__ inline std::int64_t FirstRow() {
  return static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
}
__device__ inline std::int64_t RowStep() { return static_cast<std::int64_t>(gridDim.x) * kWarps; }

// The sum of value(d) over the columns of a row; all lanes get it.
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

// What a lane writes to `sum` it alone reads again. `sum` may be x or residual.
template <typename T>
__device__ inline float AddRow(const T* x, const T* residual, std::int64_t columns, T* sum) {
  return RowSum(columns, [=](std::int64_t d) {
    sum[d] = FromFloat<T>(ToFloat(x[d]) + ToFloat(residual[d]));
    return ToFloat(sum[d]);
  });
}

// residual not null: of x + residual, which is written to `sum`.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    LayerNormKernel(const T* x, const T* residual, T* sum, const float* gamma, const float* beta,
                    std::int64_t rows, std::int64_t columns, float eps, T* y, float* means,
                    float* rstds) {
  const auto count = static_cast<float>(columns);
  for (std::int64_t n = FirstRow(); n < rows; n += RowStep()) {
    const std::int64_t at = n * columns;
    const T* row = residual != nullptr ? sum + at : x + at;
    const float total = residual != nullptr
                            ? AddRow(x + at, residual + at, columns, sum + at)
                            : RowSum(columns, [row](std::int64_t d) { return ToFloat(row[d]); });
    const float mean = total / count;
    const float squares = RowSum(columns, [row, mean](std::int64_t d) {
      const float difference = ToFloat(row[d]) - mean;
      return difference * difference;
    });
    const float rstd = 1.0F / sqrtf(squares / count + eps);
    T* to = y + at;
    ForColumns(columns, [=](std::int64_t d) {
      to[d] = FromFloat<T>((ToFloat(row[d]) - mean) * rstd * gamma[d] + beta[d]);
    });
    if (threadIdx.x % kWarp == 0) {
      means[n] = mean;
      rstds[n] = rstd;
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    LayerNormInputKernel(const T* dy, const T* x, const float* gamma, const float* means,
                         const float* rstds, std::int64_t rows, std::int64_t columns, T* dx) {
  const auto count = static_cast<float>(columns);
  for (std::int64_t n = FirstRow(); n < rows; n += RowStep()) {
    const T* from = dy + n * columns;
    const T* row = x + n * columns;
    T* to = dx + n * columns;
    const float mean = means[n];
    const float rstd = rstds[n];
    const float sum = RowSum(columns, [=](std::int64_t d) { return ToFloat(from[d]) * gamma[d]; });
    const float product = RowSum(columns, [=](std::int64_t d) {
      return ToFloat(from[d]) * gamma[d] * ((ToFloat(row[d]) - mean) * rstd);
    });
    ForColumns(columns, [=](std::int64_t d) {
      const float h = (ToFloat(row[d]) - mean) * rstd;
      to[d] =
          FromFloat<T>(rstd * (ToFloat(from[d]) * gamma[d] - sum / count - h * (product / count)));
    });
  }
}

// Rows are cut into parts, whose sums are added in their order: so many rows a part at least, so
// many parts at most.
constexpr std::int64_t kRowsPerPart = 64;
constexpr std::int64_t kMaxParts = 64;

std::int64_t PartsOf(std::int64_t rows) {
  return std::clamp<std::int64_t>(rows / kRowsPerPart, 1, kMaxParts);
}

// A block takes 32 columns of a part. sums: [parts, 2, columns], of gamma and beta.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    LayerNormSumsKernel(const T* dy, const T* x, const float* means, const float* rstds,
                        std::int64_t rows, std::int64_t columns, std::int64_t parts, float* sums) {
  __shared__ float of_gamma[kWarps][kWarp];
  __shared__ float of_beta[kWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const std::int64_t part = blockIdx.x % parts;
  const std::int64_t column = blockIdx.x / parts * kWarp + lane;
  const std::int64_t end = rows * (part + 1) / parts;
  float gamma = 0;
  float beta = 0;
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t n = rows * part / parts + warp; n < end; n += kWarps) {
      const float g = ToFloat(dy[n * columns + column]);
      gamma += g * ((ToFloat(x[n * columns + column]) - means[n]) * rstds[n]);
      beta += g;
    }
  }
  of_gamma[warp][lane] = gamma;
  of_beta[warp][lane] = beta;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (unsigned w = 1; w < kWarps; ++w) {
    gamma += of_gamma[w][lane];
    beta += of_beta[w][lane];
  }
  sums[2 * part * columns + column] = gamma;
  sums[(2 * part + 1) * columns + column] = beta;
}

__global__ void __launch_bounds__(kThreads)
    LayerNormAddKernel(const float* sums, std::int64_t parts, std::int64_t columns, float* dgamma,
                       bool add_gamma, float* dbeta, bool add_beta) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (column >= columns) return;
  float gamma = 0;
  float beta = 0;
  for (std::int64_t part = 0; part < parts; ++part) {
    gamma += sums[2 * part * columns + column];
    beta += sums[(2 * part + 1) * columns + column];
  }
  dgamma[column] = add_gamma ? dgamma[column] + gamma : gamma;
  dbeta[column] = add_beta ? dbeta[column] + beta : beta;
}

// The sums are taken before dx is written, which may be dy.
template <typename T>
Status LayerNormGradientOf(const KernelStream& on, const void* dy, const void* x,
                           const float* gamma, const float* mean, const float* rstd, Matrix size,
                           const LayerNormGradients& to, float* sums) {
  const std::int64_t parts = PartsOf(size.rows);
  const unsigned blocks = BlocksFor(size.columns, kWarp) * static_cast<unsigned>(parts);
  const auto* g = static_cast<const T*>(dy);
  const auto* values = static_cast<const T*>(x);
  GACCD_RETURN_IF_ERROR(Launch(LayerNormSumsKernel<T>, {blocks, kThreads}, on.stream,
                               "layer_norm_gradient", g, values, mean, rstd, size.rows,
                               size.columns, parts, sums));
  GACCD_RETURN_IF_ERROR(Launch(LayerNormAddKernel, {BlocksFor(size.columns, kThreads), kThreads},
                               on.stream, "layer_norm_gradient", sums, parts, size.columns,
                               to.dgamma, to.add_gamma, to.dbeta, to.add_beta));
  return Launch(LayerNormInputKernel<T>, ShapeFor(on, size.rows), on.stream, "layer_norm_gradient",
                g, values, gamma, mean, rstd, size.rows, size.columns, static_cast<T*>(to.dx));
}

template <typename T>
Status LayerNormOf(const KernelStream& on, const char* what, const void* x, const void* residual,
                   void* sum, const float* gamma, const float* beta, Matrix size, float eps,
                   void* y, float* mean, float* rstd) {
  return Launch(LayerNormKernel<T>, ShapeFor(on, size.rows), on.stream, what,
                static_cast<const T*>(x), static_cast<const T*>(residual), static_cast<T*>(sum),
                gamma, beta, size.rows, size.columns, eps, static_cast<T*>(y), mean, rstd);
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

Status EnqueueLayerNorm(const KernelStream& on, DType dtype, const void* x, const float* gamma,
                        const float* beta, Matrix size, float eps, void* y, float* mean,
                        float* rstd) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &LayerNormOf<decltype(t)>; });
  return enqueue(on, "layer_norm", x, nullptr, nullptr, gamma, beta, size, eps, y, mean, rstd);
}

Status EnqueueAddLayerNorm(const KernelStream& on, DType dtype, const void* x, const void* residual,
                           const float* gamma, const float* beta, Matrix size, float eps, void* sum,
                           void* y, float* mean, float* rstd) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &LayerNormOf<decltype(t)>; });
  return enqueue(on, "add_layer_norm", x, residual, sum, gamma, beta, size, eps, y, mean, rstd);
}

std::size_t LayerNormGradientScratchBytes(Matrix size) {
  return static_cast<std::size_t>(2 * PartsOf(size.rows) * size.columns) * sizeof(float);
}

Status EnqueueLayerNormGradient(const KernelStream& on, DType dtype, const void* dy, const void* x,
                                const float* gamma, const float* mean, const float* rstd,
                                Matrix size, const LayerNormGradients& to, void* scratch) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &LayerNormGradientOf<decltype(t)>; });
  return enqueue(on, dy, x, gamma, mean, rstd, size, to, static_cast<float*>(scratch));
}

Status EnqueueSoftmax(const KernelStream& on, DType dtype, const void* x, Matrix size, void* y) {
  const LaunchShape shape = ShapeFor(on, size.rows);
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(SoftmaxKernel<T>, shape, on.stream, "softmax", static_cast<const T*>(x),
                  size.rows, size.columns, static_cast<T*>(y));
  });
}

Status EnqueueSoftmaxGradient(const KernelStream& on, DType dtype, const void* dy, const void* y,
                              Matrix size, void* dx) {
  const LaunchShape shape = ShapeFor(on, size.rows);
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(SoftmaxRowGradientKernel<T>, shape, on.stream, "softmax_gradient",
                  static_cast<const T*>(dy), static_cast<const T*>(y), size.rows, size.columns,
                  static_cast<T*>(dx));
  });
}

Status EnqueueL2Normalize(const KernelStream& on, DType dtype, const void* x, Matrix size,
                          float eps, void* y, float* norm) {
  const LaunchShape shape = ShapeFor(on, size.rows);
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(L2NormalizeKernel<T>, shape, on.stream, "l2_normalize", static_cast<const T*>(x),
                  size.rows, size.columns, eps, static_cast<T*>(y), norm);
  });
}

Status EnqueueL2NormalizeGradient(const KernelStream& on, DType dtype, const void* dy,
                                  const void* y, const float* norm, Matrix size, float eps,
                                  void* dx) {
  const LaunchShape shape = ShapeFor(on, size.rows);
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    return Launch(L2NormalizeGradientKernel<T>, shape, on.stream, "l2_normalize_gradient",
                  static_cast<const T*>(dy), static_cast<const T*>(y), norm, size.rows,
                  size.columns, eps, static_cast<T*>(dx));
  });
}

}  // namespace gaccd
