// The gradients of layer norm and RMS norm in one pass over the rows. A block processes a part of
// the rows, one row after another; a thread has the same columns of all of them and keeps their
// sums for gamma and beta. A second kernel adds the sums of the parts.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Minimum rows per part and maximum number of parts. Independent of the GPU, so that sums are too;
// enough parts to fill a large GPU once.
constexpr std::int64_t kNormRowsPerPart = 16;
constexpr std::int64_t kMaxNormParts = 768;
// Columns per thread whose values and sums are in registers. In rows of more than kValues
// kMaxThreads columns, further columns are read again, and their sums are in memory.
constexpr int kValues = 8;
constexpr unsigned kMaxThreads = 512;
constexpr unsigned kAddThreads = 1024;
constexpr unsigned kAddWarps = kAddThreads / kWarp;

std::int64_t NormParts(std::int64_t rows) {
  return std::clamp<std::int64_t>((rows + kNormRowsPerPart - 1) / kNormRowsPerPart, 1,
                                  kMaxNormParts);
}

template <typename T>
struct NormTensors {
  const T* dy;
  const T* x;
  const T* residual;  // may be null
  const float* gamma;
  const float* means;  // null: RMS norm
  const float* rstds;
  std::int64_t rows, columns;
  T* dx;
};

struct NormRow {
  float mean, rstd;
  float mean_g, mean_gh;  // means of g and of g h, see layer_norm.h
};

// Consecutive values of a row.
template <typename T, int kWidth>
struct NormVector {
  Raw<T, kWidth> dy, x, residual;

  __device__ void Read(const NormTensors<T>& in, std::int64_t at) {
    dy = LoadRaw<kWidth, Use::kStream>(in.dy + at);
    x = LoadRaw<kWidth, Use::kStream>(in.x + at);
    if (in.residual != nullptr) residual = LoadRaw<kWidth, Use::kStream>(in.residual + at);
  }
  // Adds g and g h.
  __device__ void AddTo(float2& sums, const NormTensors<T>& in, std::int64_t column,
                        const NormRow& row) const {
    float of_dy[kWidth], of_x[kWidth], gamma[kWidth];
    Unpack(dy, of_dy);
    Unpack(x, of_x);
    Load<Use::kAgain>(in.gamma + column, gamma);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      const float g = of_dy[v] * gamma[v];
      sums.x += g;
      sums.y += g * ((of_x[v] - row.mean) * row.rstd);
    }
  }
  // Writes dx, plus the residual, and adds to the sums for gamma and beta.
  __device__ void Finish(const NormTensors<T>& in, std::int64_t at, std::int64_t column,
                         const NormRow& row, float (&of_gamma)[kWidth],
                         float (&of_beta)[kWidth]) const {
    float of_dy[kWidth], of_x[kWidth], gamma[kWidth], dx[kWidth];
    Unpack(dy, of_dy);
    Unpack(x, of_x);
    Load<Use::kAgain>(in.gamma + column, gamma);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      const float h = (of_x[v] - row.mean) * row.rstd;
      of_gamma[v] += of_dy[v] * h;
      of_beta[v] += of_dy[v];
      dx[v] = row.rstd * (of_dy[v] * gamma[v] - row.mean_g - h * row.mean_gh);
    }
    if (in.residual != nullptr) {
      float added[kWidth];
      Unpack(residual, added);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) dx[v] += added[v];
    }
    Store<Use::kAgain>(in.dx + at, dx);
  }
};

// All threads get the sums. Consecutive calls must use different memory: then one barrier is
// sufficient.
__device__ inline float2 BlockSums(float2 sums, float2 (&of_warps)[kWarp]) {
  const unsigned lane = threadIdx.x % kWarp;
  sums = {WarpSum(sums.x), WarpSum(sums.y)};
  if (lane == 0) of_warps[threadIdx.x / kWarp] = sums;
  __syncthreads();
  sums = lane < blockDim.x / kWarp ? of_warps[lane] : float2{0, 0};
  return {WarpSum(sums.x), WarpSum(sums.y)};
}

// sums: [parts, 2, columns], for gamma and beta.
template <typename T, int kWidth>
__global__ void __launch_bounds__(kMaxThreads)
    LayerNormGradientKernel(NormTensors<T> in, float* sums) {
  constexpr int kCached = kValues / kWidth;
  __shared__ float2 of_warps[2][kWarp];
  const std::int64_t step = static_cast<std::int64_t>(blockDim.x) * kWidth;
  const std::int64_t mine = static_cast<std::int64_t>(threadIdx.x) * kWidth;
  const std::int64_t part = blockIdx.x;
  const std::int64_t parts = gridDim.x;
  float* gamma_sums = sums + 2 * part * in.columns;
  float* beta_sums = gamma_sums + in.columns;
  const auto count = static_cast<float>(in.columns);
  float of_gamma[kCached][kWidth] = {};
  float of_beta[kCached][kWidth] = {};
  const std::int64_t begin = in.rows * part / parts;
  const std::int64_t end = in.rows * (part + 1) / parts;
  for (std::int64_t n = begin; n < end; ++n) {
    const std::int64_t at = n * in.columns;
    NormVector<T, kWidth> cached[kCached];
#pragma unroll
    for (int j = 0; j < kCached; ++j) {
      if (mine + j * step < in.columns) cached[j].Read(in, at + mine + j * step);
    }
    const bool centered = in.means != nullptr;
    NormRow row{centered ? in.means[n] : 0, in.rstds[n], 0, 0};
    float2 of_row{0, 0};
#pragma unroll
    for (int j = 0; j < kCached; ++j) {
      if (mine + j * step < in.columns) cached[j].AddTo(of_row, in, mine + j * step, row);
    }
    NormVector<T, kWidth> further;
    for (std::int64_t d = mine + kCached * step; d < in.columns; d += step) {
      further.Read(in, at + d);
      further.AddTo(of_row, in, d, row);
    }
    of_row = BlockSums(of_row, of_warps[n % 2]);
    row.mean_g = centered ? of_row.x / count : 0;
    row.mean_gh = of_row.y / count;
#pragma unroll
    for (int j = 0; j < kCached; ++j) {
      const std::int64_t d = mine + j * step;
      if (d < in.columns) cached[j].Finish(in, at + d, d, row, of_gamma[j], of_beta[j]);
    }
    for (std::int64_t d = mine + kCached * step; d < in.columns; d += step) {
      float in_memory[2][kWidth] = {};
      if (n > begin) {
        Load<Use::kAgain>(gamma_sums + d, in_memory[0]);
        Load<Use::kAgain>(beta_sums + d, in_memory[1]);
      }
      further.Read(in, at + d);
      further.Finish(in, at + d, d, row, in_memory[0], in_memory[1]);
      Store<Use::kAgain>(gamma_sums + d, in_memory[0]);
      Store<Use::kAgain>(beta_sums + d, in_memory[1]);
    }
  }
#pragma unroll
  for (int j = 0; j < kCached; ++j) {
    const std::int64_t d = mine + j * step;
    if (d >= in.columns) continue;
    Store<Use::kAgain>(gamma_sums + d, of_gamma[j]);
    Store<Use::kAgain>(beta_sums + d, of_beta[j]);
  }
}

// A block processes 32 columns of gamma or of beta; its warps process consecutive parts. dbeta may
// be null.
__global__ void __launch_bounds__(kAddThreads)
    AddPartsKernel(const float* sums, std::int64_t parts, std::int64_t columns, float* dgamma,
                   bool add_gamma, float* dbeta, bool add_beta) {
  __shared__ float of_warps[kAddWarps][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const unsigned warp = threadIdx.x / kWarp;
  const bool is_beta = blockIdx.x % 2 == 1;
  const std::int64_t column = blockIdx.x / 2 * kWarp + lane;
  if (is_beta && dbeta == nullptr) return;
  float sum = 0;
  if (column < columns) {
    const float* from = sums + (is_beta ? columns : 0) + column;
#pragma unroll 8
    for (std::int64_t p = parts * warp / kAddWarps; p < parts * (warp + 1) / kAddWarps; ++p) {
      sum += from[2 * p * columns];
    }
  }
  of_warps[warp][lane] = sum;
  __syncthreads();
  if (warp != 0 || column >= columns) return;
  for (unsigned w = 1; w < kAddWarps; ++w) sum += of_warps[w][lane];
  float* to = (is_beta ? dbeta : dgamma) + column;
  *to = (is_beta ? add_beta : add_gamma) ? *to + sum : sum;
}

template <typename T>
Status LaunchRows(const KernelStream& on, const NormTensors<T>& in, std::int64_t parts,
                  float* sums) {
  const bool aligned = IsVectorAligned(in.dy) && IsVectorAligned(in.x) &&
                       IsVectorAligned(in.residual) && IsVectorAligned(in.gamma) &&
                       IsVectorAligned(in.dx) && IsVectorAligned(sums) &&
                       in.columns % kVectorWidth<T> == 0;
  const unsigned warps = BlocksFor(in.columns, kValues * kWarp);
  const LaunchShape shape{static_cast<unsigned>(parts), std::min(kMaxThreads, warps * kWarp)};
  return Launch(
      aligned ? LayerNormGradientKernel<T, kVectorWidth<T>> : LayerNormGradientKernel<T, 1>, shape,
      on.stream, "layer_norm_gradient", in, sums);
}

}  // namespace

std::size_t LayerNormGradientScratchBytes(Matrix size) {
  return static_cast<std::size_t>(2 * NormParts(size.rows) * size.columns) * sizeof(float);
}

Status EnqueueLayerNormGradient(const KernelStream& on, DType dtype, const void* dy, const void* x,
                                const void* residual, const float* gamma, const float* mean,
                                const float* rstd, Matrix size, const LayerNormGradients& to,
                                void* scratch) {
  auto* const sums = static_cast<float*>(scratch);
  const std::int64_t parts = NormParts(size.rows);
  GACCD_RETURN_IF_ERROR(WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    const NormTensors<T> in{static_cast<const T*>(dy),
                            static_cast<const T*>(x),
                            static_cast<const T*>(residual),
                            gamma,
                            mean,
                            rstd,
                            size.rows,
                            size.columns,
                            static_cast<T*>(to.dx)};
    return LaunchRows(on, in, parts, sums);
  }));
  return Launch(AddPartsKernel, {2 * BlocksFor(size.columns, kWarp), kAddThreads}, on.stream,
                "layer_norm_gradient", sums, parts, size.columns, to.dgamma, to.add_gamma, to.dbeta,
                to.add_beta);
}

KernelResult MakeRmsNormGradientCuda(const CudaRequest& request) {
  return MakeCall(
      request,
      [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
        const LayerNormGradients to{c.outputs[0], c.out<float>(1), nullptr, c.add[1], false};
        return EnqueueLayerNormGradient(on, dtype, c.inputs[0], c.inputs[1], nullptr,
                                        c.in<float>(2), nullptr, c.in<float>(3), size, to,
                                        c.scratch);
      },
      LayerNormGradientScratchBytes(request.size()));
}

KernelResult MakeLayerNormGradientCuda(const CudaRequest& request) {
  return MakeCall(
      request,
      [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
        const LayerNormGradients to{c.outputs[0], c.out<float>(1), c.out<float>(2), c.add[1],
                                    c.add[2]};
        return EnqueueLayerNormGradient(on, dtype, c.inputs[0], c.inputs[1], c.optional_in<void>(5),
                                        c.in<float>(2), c.in<float>(3), c.in<float>(4), size, to,
                                        c.scratch);
      },
      LayerNormGradientScratchBytes(request.size()));
}

}  // namespace gaccd
