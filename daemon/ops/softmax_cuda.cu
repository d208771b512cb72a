// Softmax cross-entropy, loss and gradient together: the logits are read from memory once and
// written once. Sums are kept relative to the largest logit seen so far ("online"), so no pass is
// needed to find it first.
#include <float.h>

#include <algorithm>
#include <type_traits>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/elementwise.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {
namespace {

// Rows up to here are the work of one warp, wider ones of one block.
constexpr std::int64_t kNarrow = 1024;
constexpr unsigned kNarrowThreads = 256;
// Within a row, places are 32-bit numbers: registers are what the wide kernel is short of.
constexpr std::int64_t kMaxClasses = std::int64_t{1} << 30;

// A block keeps the first kCached vectors a thread of a row in registers; what is beyond is read a
// second time, from the L2 cache. For f32 the rows in flight must be few to stay there, so one
// block fills a multiprocessor; for 16 bits two do, and one reads while the other one computes.
template <typename T>
constexpr unsigned kWideThreads = sizeof(T) == 2 ? 512 : 1024;
template <typename T>
constexpr unsigned kWideBlocks = sizeof(T) == 2 ? 2 : 1;
// As many as leave no register spilled.
template <typename T>
constexpr int kCached = sizeof(T) == 2 ? 8 : 7;

// exp(x) for x <= 0. Logits of 16 bits have 11 at most, so the fast exponential (relative error
// below 2^-22 (2 + |x|), results below 2^-126 become 0) loses nothing, and two of the exact one a
// value would take longer than the memory.
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

// sum of exp(z - top) over the values so far. It starts at the lowest finite number, not at
// -infinity, so that logits of -infinity count 0 and not NaN.
template <typename T>
struct OnlineSum {
  float top = -FLT_MAX;
  float sum = 0;

  // `first`: the class of z[0]. The label is left out, see SoftmaxRow.
  template <int kWidth>
  __device__ void AddOthers(const Raw<T, kWidth>& raw, int first, int label) {
    float z[kWidth];
    Unpack(raw, z);
    if (label >= first && label < first + kWidth) {
#pragma unroll
      for (int v = 0; v < kWidth; ++v) {
        if (first + v == label) z[v] = -INFINITY;
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

template <typename T>
__device__ inline float LabelLogit(const T* z, int label, int columns) {
  return label >= 0 && label < columns ? ToFloat(z[label]) : NAN;
}

// Puts the warp's sums together, and the label's term to them.
template <typename T>
__device__ inline SoftmaxRow FinishRow(float top, float sum, float label_logit) {
  SoftmaxRow row;
  row.top = fmaxf(WarpMax(top), label_logit);
  row.rest = WarpSum(sum * Exp<T>(top - row.top));
  row.label = Exp<T>(label_logit - row.top);
  return row;
}

// What is written at the label: the probability p, or (p - 1) weight = -rest / total * weight.
__device__ inline float AtLabel(const SoftmaxRow& row, float scale, bool gradient) {
  return (gradient ? -row.rest : row.label) * scale;
}

template <typename T, int kPerLane>
__global__ void __launch_bounds__(kNarrowThreads, 3)
    NarrowKernel(const T* logits, const std::int32_t* labels, const float* dloss, T* out,
                 std::int64_t rows, int columns, double* loss_sum, unsigned* arrived,
                 double* partials) {
  const unsigned lane = threadIdx.x % kWarp;
  constexpr unsigned kWarps = kNarrowThreads / kWarp;
  const float weight = dloss != nullptr ? *dloss : 1.0F;
  double loss = 0;
  for (std::int64_t m = static_cast<std::int64_t>(blockIdx.x) * kWarps + threadIdx.x / kWarp;
       m < rows; m += static_cast<std::int64_t>(gridDim.x) * kWarps) {
    const T* z = logits + m * columns;
    const int label = labels[m];
    const float label_logit = LabelLogit(z, label, columns);
    float values[kPerLane];
    float top = -FLT_MAX;
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int c = static_cast<int>(lane + j * kWarp);
      values[j] = c < columns && c != label ? ToFloat(z[c]) : -INFINITY;
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
    if (lane == 0) loss += CrossEntropy(row, label_logit);
    if (out == nullptr) continue;
    const float scale = weight / row.total();
#pragma unroll
    for (int j = 0; j < kPerLane; ++j) {
      const int c = static_cast<int>(lane + j * kWarp);
      if (c >= columns) continue;
      out[m * columns + c] =
          FromFloat<T>(c == label ? AtLabel(row, scale, dloss != nullptr) : values[j] * scale);
    }
  }
  double total = 0;
  if (GridSum(BlockSum(loss), arrived, partials, &total) && threadIdx.x == 0) *loss_sum = total;
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kWideThreads<T>, kWideBlocks<T>)
    WideKernel(const T* logits, const std::int32_t* labels, const float* dloss, T* out,
               std::int64_t rows, int columns, double* loss_sum, unsigned* arrived,
               double* partials) {
  constexpr unsigned kThreads = kWideThreads<T>;
  constexpr int kStep = static_cast<int>(kThreads) * kWidth;
  // Two sets, used in turn: one barrier a row is enough.
  __shared__ float tops[2][kWarp];
  __shared__ float sums[2][kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  const int mine = static_cast<int>(threadIdx.x) * kWidth;
  const float weight = dloss != nullptr ? *dloss : 1.0F;
  double loss = 0;
  unsigned set = 0;
  for (std::int64_t m = blockIdx.x; m < rows; m += gridDim.x, set ^= 1U) {
    const T* z = logits + m * columns;
    const int label = labels[m];
    const float label_logit = LabelLogit(z, label, columns);
    Raw<T, kWidth> cached[kCached<T>];
#pragma unroll
    for (int j = 0; j < kCached<T>; ++j) {
      if (mine + j * kStep < columns) {
        cached[j] = LoadRaw<kWidth, Use::kStream>(z + mine + j * kStep);
      }
    }
    OnlineSum<T> online;
#pragma unroll
    for (int j = 0; j < kCached<T>; ++j) {
      const int first = mine + j * kStep;
      if (first < columns) online.AddOthers(cached[j], first, label);
    }
#pragma unroll 2
    for (int first = mine + kCached<T> * kStep; first < columns; first += kStep) {
      online.AddOthers(LoadRaw<kWidth, Use::kAgain>(z + first), first, label);
    }
    const float warp_top = WarpMax(online.top);
    const float warp_sum = WarpSum(online.sum * Exp<T>(online.top - warp_top));
    if (lane == 0) {
      tops[set][threadIdx.x / kWarp] = warp_top;
      sums[set][threadIdx.x / kWarp] = warp_sum;
    }
    __syncthreads();  // also: nobody writes to the row before everybody has read the label's logit
    const bool has_warp = lane < kThreads / kWarp;
    const SoftmaxRow row = FinishRow<T>(has_warp ? tops[set][lane] : -FLT_MAX,
                                        has_warp ? sums[set][lane] : 0.0F, label_logit);
    if (threadIdx.x == 0) loss += CrossEntropy(row, label_logit);
    if (out == nullptr) continue;

    T* to = out + m * columns;
    const float scale = weight / row.total();
    const auto write = [&](const Raw<T, kWidth>& raw, int first) {
      float p[kWidth];
      Unpack(raw, p);
#pragma unroll
      for (int v = 0; v < kWidth; ++v) p[v] = Exp<T>(p[v] - row.top) * scale;
      Store<Use::kStream>(to + first, p);
      if (label >= first && label < first + kWidth) {
        to[label] = FromFloat<T>(AtLabel(row, scale, dloss != nullptr));
      }
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
  double total = 0;
  if (GridSum(loss, arrived, partials, &total) && threadIdx.x == 0) *loss_sum = total;
}

template <typename T>
Status Enqueue(const KernelStream& on, const char* what, const void* logits,
               const std::int32_t* labels, const float* dloss, Matrix size, double* loss_sum,
               void* out) {
  const auto start = [&](auto* kernel, std::int64_t blocks, unsigned threads) {
    const auto count = static_cast<unsigned>(
        std::clamp<std::int64_t>(blocks, 1, static_cast<std::int64_t>(GridSums::kMaxBlocks)));
    return Launch(kernel, {count, threads}, on.stream, what, static_cast<const T*>(logits), labels,
                  dloss, static_cast<T*>(out), size.rows, static_cast<int>(size.columns), loss_sum,
                  on.sums.arrived, on.sums.partials);
  };
  if (size.columns > kMaxClasses) {
    return {ErrorKind::kConfig,
            StrCat(what, ": expected at most ", kMaxClasses, " classes, found ", size.columns)};
  }
  const std::int64_t multiprocessors = on.multiprocessors;
  if (size.columns <= kNarrow) {
    const std::int64_t blocks =
        std::min<std::int64_t>(multiprocessors * 8, BlocksFor(size.rows, kNarrowThreads / kWarp));
    if (size.columns <= 32) return start(NarrowKernel<T, 1>, blocks, kNarrowThreads);
    if (size.columns <= 128) return start(NarrowKernel<T, 4>, blocks, kNarrowThreads);
    return start(NarrowKernel<T, 32>, blocks, kNarrowThreads);
  }
  const std::int64_t blocks = std::min<std::int64_t>(multiprocessors * kWideBlocks<T>, size.rows);
  const bool aligned =
      IsVectorAligned(logits) && IsVectorAligned(out) && size.columns % kVectorWidth<T> == 0;
  return aligned ? start(WideKernel<T, kVectorWidth<T>>, blocks, kWideThreads<T>)
                 : start(WideKernel<T, 1>, blocks, kWideThreads<T>);
}

}  // namespace

Status EnqueueSoftmaxCrossEntropy(const KernelStream& on, DType dtype, const void* logits,
                                  const std::int32_t* labels, Matrix size, double* loss_sum,
                                  void* probabilities) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &Enqueue<decltype(t)>; });
  return enqueue(on, "softmax_cross_entropy", logits, labels, nullptr, size, loss_sum,
                 probabilities);
}

Status EnqueueSoftmaxCrossEntropyFused(const KernelStream& on, DType dtype, const void* logits,
                                       const std::int32_t* labels, const float* dloss, Matrix size,
                                       double* loss_sum, void* out) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &Enqueue<decltype(t)>; });
  return enqueue(on, "softmax_cross_entropy_fused", logits, labels, dloss, size, loss_sum, out);
}

}  // namespace gaccd
