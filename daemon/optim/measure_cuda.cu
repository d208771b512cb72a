// The kernels before and after the optimiser: sums of losses and counts, the norm with the verdict,
// the cast of the weights.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/device/cuda/reduce.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

// The same on every GPU, so that the order of the sums is, too; enough for one wave on 132
// multiprocessors with 8 blocks each.
constexpr unsigned kNormBlocks = 1024;
constexpr int kWidth = 4;

__global__ void __launch_bounds__(kWarp)
    AddToSumsKernel(UpdateControl* control, const double* loss_sum, const double* divisor,
                    double samples, bool first) {
  if (threadIdx.x != 0) return;
  const double loss = loss_sum != nullptr ? *loss_sum : 0;
  UpdateSums& sums = control->sums;
  const double counted = divisor != nullptr ? *divisor : samples;
  sums.loss = first ? loss : sums.loss + loss;
  sums.divisor = first ? counted : sums.divisor + counted;
  sums.samples = first ? samples : sums.samples + samples;
}

__global__ void __launch_bounds__(kWarp)
    LimitKernel(const UpdateControl* control, float* parameter, float most) {
  if (threadIdx.x != 0 || control->verdict.idle != 0) return;
  if (*parameter > most) *parameter = most;
}

__global__ void __launch_bounds__(kThreads)
    NormKernel(const float* gradient, std::int64_t elements, UpdateControl* control,
               double* squares, unsigned* arrived, double* partials) {
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  const std::int64_t thread = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const std::int64_t vectors = elements / kWidth;
  double sum = 0;
#pragma unroll 4
  for (std::int64_t i = thread; i < vectors; i += threads) {
    float g[kWidth];
    Load<Use::kAgain>(gradient + i * kWidth, g);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) {
      const double value = g[v];
      sum += value * value;
    }
  }
  for (std::int64_t i = vectors * kWidth + thread; i < elements; i += threads) {
    const double value = gradient[i];
    sum += value * value;
  }
  // The square of a finite float never overflows in double.
  double total = 0;
  if (GridSum(BlockSum(sum), arrived, partials, &total) && threadIdx.x == 0) {
    if (squares != nullptr) {
      *squares = total;
    } else {
      JudgeUpdate(total, control);
    }
  }
}

__global__ void __launch_bounds__(kWarp)
    JudgeKernel(const double* squares, int parts, UpdateControl* control) {
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int part = 0; part < parts; ++part) total += squares[part];
  JudgeUpdate(total, control);
}

Status EnqueueNorm(cudaStream_t stream, const float* gradient, std::int64_t elements,
                   UpdateControl* control, double* squares, void* scratch) {
  const GridSums sums = GridSums::At(scratch);
  const unsigned blocks =
      std::min(kNormBlocks, BlocksFor(elements, static_cast<std::int64_t>(kThreads) * kWidth));
  return Launch(NormKernel, {blocks, kThreads}, stream, "gradient norm", gradient, elements,
                control, squares, sums.arrived, sums.partials);
}

template <typename Half>
__global__ void __launch_bounds__(kThreads)
    CastKernel(const float* in, std::int64_t elements, Half* out) {
  constexpr int kValues = kVectorWidth<Half>;
  const std::int64_t first =
      (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * kValues;
  if (first + kValues <= elements) {
    float values[kValues];
    Load<Use::kStream>(in + first, values);
    Store<Use::kAgain>(out + first, values);
  } else {
    for (std::int64_t i = first; i < elements; ++i) out[i] = FromFloat<Half>(in[i]);
  }
}

}  // namespace

Status AddToSums(cudaStream_t stream, UpdateControl* control, const double* loss_sum,
                 const double* divisor, std::int64_t samples, bool first) {
  return Launch(AddToSumsKernel, {1, kWarp}, stream, "sums of the micro-step", control, loss_sum,
                divisor, static_cast<double>(samples), first);
}

std::size_t NormScratchBytes() { return GridSums::kBytes; }

Status MeasureGradient(cudaStream_t stream, const float* gradient, std::int64_t elements,
                       UpdateControl* control, void* scratch) {
  return EnqueueNorm(stream, gradient, elements, control, /*squares=*/nullptr, scratch);
}

Status SumSquares(cudaStream_t stream, const float* gradient, std::int64_t elements,
                  double* squares, void* scratch) {
  return EnqueueNorm(stream, gradient, elements, /*control=*/nullptr, squares, scratch);
}

Status JudgeSquares(cudaStream_t stream, const double* squares, int parts, UpdateControl* control) {
  return Launch(JudgeKernel, {1, kWarp}, stream, "verdict of an update", squares, parts, control);
}

Status LimitParameter(cudaStream_t stream, const UpdateControl* control, float* parameter,
                      float most) {
  return Launch(LimitKernel, {1, kWarp}, stream, "limit of a parameter", control, parameter, most);
}

Status CastTo(DType dtype, cudaStream_t stream, const float* in, std::int64_t elements, void* out) {
  return WithHalf(dtype, [&](auto half) {
    using Half = decltype(half);
    const std::int64_t per_block = static_cast<std::int64_t>(kThreads) * kVectorWidth<Half>;
    return Launch(CastKernel<Half>, {BlocksFor(elements, per_block), kThreads}, stream,
                  "cast of parameters", in, elements, static_cast<Half*>(out));
  });
}

}  // namespace gaccd
