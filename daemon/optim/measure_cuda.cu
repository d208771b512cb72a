// Kernels before and after the optimiser: sums of losses and counts, norm and decision, conversion
// of the weights.
#include <algorithm>
#include <cmath>

#include "daemon/device/cuda/launch.h"
#include "daemon/device/cuda/reduce.h"
#include "daemon/optim/optimizer_cuda.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

// The maximum: one wave on 132 multiprocessors with 8 blocks each. The same on every GPU, so that
// the order of the sums is the same.
constexpr unsigned kNormBlocks = 1024;
constexpr int kWidth = 4;
constexpr int kBlock = FlatLayout::kBlock;

std::int64_t BlockCount(std::int64_t elements) { return (elements + kBlock - 1) / kBlock; }

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
    LimitKernel(const UpdateControl* control, float* parameter, float max_value) {
  if (threadIdx.x != 0 || control->decision.idle != 0) return;
  if (*parameter > max_value) *parameter = max_value;
}

// One warp sums one block of values, so the result depends on nothing else.
__global__ void __launch_bounds__(kThreads)
    SquaresKernel(const float* gradient, std::int64_t elements, const UpdateControl* control,
                  double* squares) {
  const std::int64_t block = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
  const std::int64_t first = block * kBlock;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  double sum = 0;
  if (first + kBlock <= elements) {
    constexpr int kOfWarp = static_cast<int>(kWarp) * kWidth;
#pragma unroll
    for (int done = 0; done < kBlock; done += kOfWarp) {
      float g[kWidth];
      Load<Use::kAgain>(gradient + first + done + lane * kWidth, g);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) {
        const double value = g[v];
        sum += value * value;
      }
    }
  } else {
    for (std::int64_t i = first + lane; i < elements; i += kWarp) {
      const double value = gradient[i];
      sum += value * value;
    }
  }
  sum = WarpSum(sum);
  // The owner of a non-finite parameter makes it known to all ranks through the sum.
  if (lane == 0 && first < elements) {
    squares[block] = control->parameters_not_finite != 0 ? NAN : sum;
  }
}

// The sum over the blocks, or if `total_of_part` is null the decision from it.
__global__ void __launch_bounds__(kThreads)
    SumKernel(const double* squares, std::int64_t blocks, UpdateControl* control,
              double* total_of_part, unsigned* arrived, double* partials) {
  double sum = 0;
  for (std::int64_t i = GridIndex(); i < blocks; i += GridStride()) sum += squares[i];
  // The square of a finite float never overflows in double.
  double total = 0;
  if (GridSum(BlockSum(sum), arrived, partials, &total) && threadIdx.x == 0) {
    if (total_of_part != nullptr) {
      *total_of_part = total;
    } else {
      DecideUpdate(total, control);
    }
  }
}

__global__ void __launch_bounds__(kWarp)
    DecideFromPartsKernel(const double* squares, int parts, UpdateControl* control) {
  if (threadIdx.x != 0) return;
  double total = 0;
  for (int part = 0; part < parts; ++part) total += squares[part];
  DecideUpdate(total, control);
}

Status EnqueueSum(cudaStream_t stream, std::int64_t elements, UpdateControl* control,
                  double* total_of_part, void* scratch) {
  const GridSums sums = GridSums::At(scratch);
  const std::int64_t blocks = BlockCount(elements);
  const unsigned grid = std::min(kNormBlocks, BlocksFor(blocks, kThreads));
  return Launch(SumKernel, {grid, kThreads}, stream, "gradient norm", SquaresIn(scratch), blocks,
                control, total_of_part, sums.arrived, sums.partials);
}

template <typename Half>
__global__ void __launch_bounds__(kThreads)
    CastKernel(const float* in, std::int64_t elements, Half* out) {
  constexpr int kValues = kVectorWidth<Half>;
  const std::int64_t first = GridIndex() * kValues;
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

std::size_t NormScratchBytes(std::int64_t elements) {
  return GridSums::kBytes + static_cast<std::size_t>(BlockCount(elements)) * sizeof(double);
}

double* SquaresIn(void* scratch) {
  return reinterpret_cast<double*>(static_cast<char*>(scratch) + GridSums::kBytes);
}

Status BlockSquares(cudaStream_t stream, const float* gradient, std::int64_t elements,
                    const UpdateControl* control, double* squares) {
  if (elements == 0) return Status::Ok();
  return Launch(SquaresKernel, {BlocksFor(BlockCount(elements), kWarps), kThreads}, stream,
                "squares of the gradient", gradient, elements, control, squares);
}

Status DecideFromSquares(cudaStream_t stream, std::int64_t elements, UpdateControl* control,
                         void* scratch) {
  return EnqueueSum(stream, elements, control, /*total_of_part=*/nullptr, scratch);
}

Status SumSquares(cudaStream_t stream, std::int64_t elements, UpdateControl* control, double* sum,
                  void* scratch) {
  return EnqueueSum(stream, elements, control, sum, scratch);
}

Status DecideFromParts(cudaStream_t stream, const double* squares, int parts,
                       UpdateControl* control) {
  return Launch(DecideFromPartsKernel, {1, kWarp}, stream, "verdict of an update", squares, parts,
                control);
}

Status LimitParameter(cudaStream_t stream, const UpdateControl* control, float* parameter,
                      float max_value) {
  return Launch(LimitKernel, {1, kWarp}, stream, "limit of a parameter", control, parameter,
                max_value);
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
