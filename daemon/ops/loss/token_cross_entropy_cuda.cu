// Cross-entropy, loss and gradient together: the logits are read and written once. Sums are kept
// relative to the largest logit so far ("online" softmax), so no separate pass for the maximum is
// needed. Label smoothing adds e / C times the distance of a row to its loss, the sum over c of
// z[label] - z[c]: its reference is known from the start, and every thread adds its own part.
#include <float.h>

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Rows up to this width are processed by a warp, wider ones by a block.
constexpr std::int64_t kNarrow = 1024;
constexpr unsigned kNarrowThreads = 256;
// Positions within a row are 32-bit integers, to save registers in the wide kernel.
constexpr std::int64_t kMaxClasses = std::int64_t{1} << 30;

// A block keeps the first kCached vectors per thread of a row in registers; the rest is read a
// second time from the L2 cache. With f32 few rows may be in flight to stay in the cache, so one
// block fills a multiprocessor; with 16 bits two do, and one reads while the other computes.
template <typename T>
constexpr unsigned kWideThreads = sizeof(T) == 2 ? 512 : 1024;
template <typename T>
constexpr unsigned kWideBlocks = sizeof(T) == 2 ? 2 : 1;
// The largest number with few spilled registers.
template <typename T>
constexpr int kCached = sizeof(T) == 2 ? 8 : 7;

// exp(x) for x <= 0. 16-bit logits have at most 11 significant bits, so the fast exponential
// (relative error below 2^-22 (2 + |x|), results below 2^-126 become 0) loses nothing; two exact
// ones per value would take longer than the memory accesses.
template <typename T>
__device__ inline float Exp(float x) {
#if defined(__CUDA_ARCH__)
  if constexpr (sizeof(T) == 2) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * 1.4426950408889634F));
    return y;
  }
#endif
  return expf(x);
}

// sum of exp(z - top) over the values so far. top starts at the lowest finite number instead of
// -infinity, so that logits of -infinity count as 0 and not NaN.
template <typename T>
struct OnlineSum {
  float top = -FLT_MAX;
  float sum = 0;

  // first: the class of z[0]. Excludes the label, see SoftmaxRow, and values beyond the row.
  template <int kWidth>
  __device__ void AddOthers(const Raw<T, kWidth>& raw, int first, int columns, int label) {
    float z[kWidth];
    Unpack(raw, z);
    if ((label >= first && label < first + kWidth) || (kWidth > 1 && first + kWidth > columns)) {
#pragma unroll
      for (int v = 0; v < kWidth; ++v) {
        if (first + v == label || first + v >= columns) z[v] = -INFINITY;
      }
    }
    float highest = top;
#pragma unroll
    for (int v = 0; v < kWidth; ++v) highest = fmaxf(highest, z[v]);
    sum *= Exp<T>(top - highest);
#pragma unroll
    for (int v = 0; v < kWidth; ++v) sum += Exp<T>(z[v] - highest);
    top = highest;
  }
};

// Over the classes from `first` on.
template <typename T, int kWidth>
__device__ inline float SumDistances(const Raw<T, kWidth>& raw, int first, int columns,
                                     float label_logit) {
  float z[kWidth];
  Unpack(raw, z);
  float distance = 0;
#pragma unroll
  for (int v = 0; v < kWidth; ++v) {
    if (first + v < columns) distance += label_logit - z[v];
  }
  return distance;
}

// Combines the sums of the warp, and adds the term of the label.
template <typename T>
__device__ inline SoftmaxRow FinishRow(float top, float sum, float label_logit) {
  SoftmaxRow row;
  row.top = fmaxf(WarpMax(top), label_logit);
  row.rest = WarpSum(sum * Exp<T>(top - row.top));
  row.label = Exp<T>(label_logit - row.top);
  return row;
}

// Values written for a row: exp(z - top) scale - everywhere, and at_label at its label.
struct Written {
  float scale, everywhere, at_label;
};

__device__ inline Written MakeGradient(const SoftmaxRow& row,
                                       const TokenCrossEntropyOptions& options, float weight,
                                       int columns) {
  const float scale = weight / row.total();
  const float smoothing = weight * options.label_smoothing;
  const float everywhere = smoothing / static_cast<float>(columns);
  return {scale, everywhere,
          -row.rest * scale + (smoothing - everywhere)};  // p - 1 = -rest / total
}

__device__ inline float TokenWeight(const float* weights, std::int64_t m) {
  return weights != nullptr ? weights[m] : 1.0F;
}

// A thread's part of the loss of a row: the first thread has the cross-entropy. With a label of
// -infinity the loss is already infinite.
__device__ inline double RowLoss(const SoftmaxRow& row, const TokenCrossEntropyOptions& options,
                                 float label_logit, float distance, int columns, bool is_first) {
  double of_row = is_first ? CrossEntropy(row, label_logit) : 0.0;
  if (options.label_smoothing > 0 && label_logit != -INFINITY) {
    of_row +=
        static_cast<double>(options.label_smoothing) / columns * static_cast<double>(distance);
  }
  return of_row;
}

struct LossSums {
  double* loss_sum;
  double* weight_sum;
  unsigned* arrived;
  double* partials;
};

// Called by all threads at the end of a kernel.
__device__ inline void AddUp(double loss, const TokenCrossEntropyOptions& options,
                             const std::int32_t* labels, const float* weights, std::int64_t rows,
                             const LossSums& to) {
  double weight = 0;
  for (std::int64_t m = GridIndex(); m < rows; m += GridStride()) {
    if (labels[m] != options.ignored_label) weight += static_cast<double>(TokenWeight(weights, m));
  }
  double sums[2];
  sums[0] = BlockSum(loss);
  __syncthreads();
  sums[1] = BlockSum(weight);
  if (!GridSum(sums, to.arrived, to.partials) || threadIdx.x != 0) return;
  *to.loss_sum = sums[0];
  *to.weight_sum = sums[1];
}

template <typename T, int kPerLane>
__global__ void __launch_bounds__(kNarrowThreads, 3)
    NarrowKernel(const T* logits, const std::int32_t* labels, const float* weights,
                 const float* dloss, T* out, std::int64_t rows, int columns, std::int64_t stride,
                 TokenCrossEntropyOptions options, double* loss_sum, double* weight_sum,
                 unsigned* arrived, double* partials) {
  const unsigned lane = threadIdx.x % kWarp;
  constexpr unsigned kWarps = kNarrowThreads / kWarp;
  const float seed = dloss != nullptr ? *dloss : 0.0F;
  double loss = 0;
  for (std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
       m < rows; m += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const T* z = logits + m * stride;
    const int label = labels[m];
    const bool ignored = label == options.ignored_label;
    if (ignored || label < 0 || label >= columns) {
      if (!ignored) loss = NAN;
      for (int c = static_cast<int>(lane); out != nullptr && c < columns; c += kWarp) {
        out[m * stride + c] = FromFloat<T>(0.0F);
      }
      continue;
    }
    const float weight = TokenWeight(weights, m);
    const float label_logit = ToFloat(z[label]);
    float values[kPerLane];
    float top = -FLT_MAX;
    float distance = 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int c = static_cast<int>(lane + j * kWarp);
      values[j] = c < columns && c != label ? ToFloat(z[c]) : -INFINITY;
      if (options.label_smoothing > 0 && c < columns && c != label) {
        distance += label_logit - values[j];
      }
      top = fmaxf(top, values[j]);
    }
    top = fmaxf(WarpMax(top), label_logit);
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      values[j] = Exp<T>(values[j] - top);
      sum += values[j];
    }
    const SoftmaxRow row = FinishRow<T>(top, sum, label_logit);
    loss += static_cast<double>(weight) *
            RowLoss(row, options, label_logit, distance, columns, lane == 0);
    if (out == nullptr) continue;
    const Written to = MakeGradient(row, options, weight * seed, columns);
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int c = static_cast<int>(lane + j * kWarp);
      if (c >= columns) continue;
      out[m * stride + c] =
          FromFloat<T>(c == label ? to.at_label : values[j] * to.scale - to.everywhere);
    }
  }
  AddUp(loss, options, labels, weights, rows, {loss_sum, weight_sum, arrived, partials});
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kWideThreads<T>, kWideBlocks<T>)
    WideKernel(const T* logits, const std::int32_t* labels, const float* weights,
               const float* dloss, T* out, std::int64_t rows, int columns, std::int64_t stride,
               TokenCrossEntropyOptions options, double* loss_sum, double* weight_sum,
               unsigned* arrived, double* partials) {
  constexpr unsigned kThreads = kWideThreads<T>;
  constexpr int kStep = static_cast<int>(kThreads) * kWidth;
  // Two sets, used alternately, so that one barrier per row is sufficient.
  __shared__ float tops[2][kWarp];
  __shared__ float sums[2][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const int mine = static_cast<int>(threadIdx.x) * kWidth;
  __shared__ double losses[kThreads];  // in shared memory, as there are no registers left
  double& loss = losses[threadIdx.x];
  loss = 0;
  unsigned set = 0;
  // Labels are prefetched by one row, as the rest of the row depends on the label.
  int next = blockIdx.x < rows ? labels[blockIdx.x] : 0;
  for (std::int64_t m = blockIdx.x; m < rows; m += gridDim.x) {
    const T* z = logits + m * stride;
    const int label = next;
    if (m + gridDim.x < rows) next = labels[m + gridDim.x];
    const bool ignored = label == options.ignored_label;
    if (ignored || label < 0 || label >= columns) {
      if (!ignored) loss = NAN;
      const float zeros[kWidth] = {};
      for (int first = mine; out != nullptr && first < columns; first += kStep) {
        Store<Use::kStream>(out + m * stride + first, zeros);
      }
      continue;
    }
    const float label_logit = ToFloat(z[label]);
    Raw<T, kWidth> cached[kCached<T>];
#pragma unroll
    for (int j = 0; j < kCached<T>; ++j) {
      if (mine + j * kStep < columns) {
        cached[j] = LoadRaw<kWidth, Use::kStream>(z + mine + j * kStep);
      }
    }
    OnlineSum<T> online;
    float distance = 0;
    const auto add = [&](const Raw<T, kWidth>& raw, int first) {
      online.AddOthers(raw, first, columns, label);
      if (options.label_smoothing > 0) distance += SumDistances(raw, first, columns, label_logit);
    };
#pragma unroll
    for (int j = 0; j < kCached<T>; ++j) {
      if (mine + j * kStep < columns) add(cached[j], mine + j * kStep);
    }
#pragma unroll 2
    for (int first = mine + kCached<T> * kStep; first < columns; first += kStep) {
      add(LoadRaw<kWidth, Use::kAgain>(z + first), first);
    }
    const float warp_top = WarpMax(online.top);
    const float warp_sum = WarpSum(online.sum * Exp<T>(online.top - warp_top));
    if (lane == 0) {
      tops[set][threadIdx.x / kWarp] = warp_top;
      sums[set][threadIdx.x / kWarp] = warp_sum;
    }
    __syncthreads();  // also: all threads have read the label's logit before any writes to the row
    const bool has_warp = lane < kThreads / kWarp;
    const SoftmaxRow row = FinishRow<T>(has_warp ? tops[set][lane] : -FLT_MAX,
                                        has_warp ? sums[set][lane] : 0.0F, label_logit);
    set ^= 1U;  // not for rows without a barrier
    const float weight = TokenWeight(weights, m);
    if (threadIdx.x == 0 || options.label_smoothing > 0) {
      loss += static_cast<double>(weight) *
              RowLoss(row, options, label_logit, distance, columns, threadIdx.x == 0);
    }
    if (out == nullptr) continue;

    T* to = out + m * stride;
    const Written written = MakeGradient(row, options, weight * *dloss, columns);
    const auto write = [&](const Raw<T, kWidth>& raw, int first) {
      float p[kWidth];
      Unpack(raw, p);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) {
        // Values read beyond a row may be NaN; a product that reads whole vectors must see zeros.
        p[v] = first + v < columns ? Exp<T>(p[v] - row.top) * written.scale - written.everywhere
                                   : 0.0F;
      }
      Store<Use::kStream>(to + first, p);
      if (label >= first && label < first + kWidth) to[label] = FromFloat<T>(written.at_label);
    };
#pragma unroll
    for (int j = 0; j < kCached<T>; ++j) {
      if (mine + j * kStep < columns) write(cached[j], mine + j * kStep);
    }
#pragma unroll 2
    for (int first = mine + kCached<T> * kStep; first < columns; first += kStep) {
      write(LoadRaw<kWidth, Use::kStream>(z + first), first);
    }
  }
  AddUp(loss, options, labels, weights, rows, {loss_sum, weight_sum, arrived, partials});
}

}  // namespace

Status EnqueueTokenCrossEntropy(const KernelStream& on, DType dtype, const void* logits,
                                const std::int32_t* labels, const float* weights,
                                const TokenCrossEntropyOptions& options, const float* dloss,
                                Matrix size, double* loss_sum, double* weight_sum, void* dlogits) {
  constexpr const char* kName = "token_cross_entropy";
  const std::int64_t rows = size.rows;
  const std::int64_t columns = size.columns;
  const std::int64_t stride = size.row_stride();
  if (columns > kMaxClasses) {
    return {ErrorKind::kConfig,
            StrCat(kName, ": expected at most ", kMaxClasses, " classes, found ", columns)};
  }
  return WithFloat(dtype, [&](auto t) {
    using T = decltype(t);
    const auto start = [&](auto* kernel, std::int64_t blocks, unsigned threads) {
      const auto count = static_cast<unsigned>(
          std::clamp<std::int64_t>(blocks, 1, static_cast<std::int64_t>(GridSums::kMaxBlocks)));
      return Launch(kernel, {count, threads}, on.stream, kName, static_cast<const T*>(logits),
                    labels, weights, dloss, static_cast<T*>(dlogits), rows,
                    static_cast<int>(columns), stride, options, loss_sum, weight_sum,
                    on.sums.arrived, on.sums.partials);
    };
    if (columns <= kNarrow) {
      const std::int64_t blocks = on.Blocks(rows, kNarrowThreads / kWarp);
      if (columns <= 32) return start(NarrowKernel<T, 1>, blocks, kNarrowThreads);
      if (columns <= 128) return start(NarrowKernel<T, 4>, blocks, kNarrowThreads);
      return start(NarrowKernel<T, 32>, blocks, kNarrowThreads);
    }
    const std::int64_t blocks =
        std::min<std::int64_t>(std::int64_t{on.multiprocessors} * kWideBlocks<T>, rows);
    // The last vector of a row may extend into the gap between rows.
    const bool aligned =
        IsVectorAligned(logits) && IsVectorAligned(dlogits) && stride % kVectorWidth<T> == 0;
    return aligned ? start(WideKernel<T, kVectorWidth<T>>, blocks, kWideThreads<T>)
                   : start(WideKernel<T, 1>, blocks, kWideThreads<T>);
  });
}

KernelResult MakeTokenCrossEntropyFusedCuda(const CudaRequest& request) {
  const auto options = static_cast<const TokenCrossEntropyFused&>(request.function).options();
  return MakeCall(request, [on = request.on, dtype = request.dtype(), size = request.size(),
                            options](const Call& c) {
    return EnqueueTokenCrossEntropy(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                    c.optional_in<float>(3), options, c.in<float>(2), size,
                                    c.out<double>(1), c.out<double>(2), c.outputs[0]);
  });
}

KernelResult MakeTokenCrossEntropyLossCuda(const CudaRequest& request) {
  const auto options = static_cast<const TokenCrossEntropyLoss&>(request.function).options();
  return MakeCall(request, [on = request.on, dtype = request.dtype(), size = request.size(),
                            options](const Call& c) {
    return EnqueueTokenCrossEntropy(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                    c.optional_in<float>(2), options, nullptr, size,
                                    c.out<double>(0), c.out<double>(1), nullptr);
  });
}

}  // namespace gaccd
