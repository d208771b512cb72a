// Attention with tiles in shared memory. A block processes one tile of rows (forward, dq) or of
// keys (dk, dv) of one head and iterates over the others, so that every sum has one writer and one
// order.
#include <algorithm>
#include <cmath>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/attention/attention_cuda.h"
#include "daemon/ops/attention/attention_tiles_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using namespace attention;  // NOLINT: kernels of one function in two files

// The head that a block processes; `first` is the first row of its tile.
struct Head {
  std::int64_t first, known, rows;  // known: keys of the sequence
  std::int64_t in, out, sums;       // where it begins in q, k and v, in y, in lse

  __device__ static Head Make(const AttentionSize& z, const std::int32_t* lengths, int own) {
    const std::int64_t tiles = (z.length + own - 1) / own;
    const std::int64_t head = blockIdx.x / tiles % z.heads;
    const std::int64_t sequence = blockIdx.x / tiles / z.heads;
    std::int64_t known = lengths == nullptr ? z.length : lengths[sequence];
    known = known < 0 ? 0 : known < z.length ? known : z.length;
    return {static_cast<std::int64_t>(blockIdx.x) % tiles * own,
            known,
            z.all_rows && known > 0 ? z.length : known,
            sequence * z.length * z.step + head * z.width,
            sequence * z.length * z.heads * z.width + head * z.width,
            (sequence * z.heads + head) * z.length};
  }
  // Whether row i attends to key j.
  __device__ bool Attends(const AttentionSize& z, std::int64_t i, std::int64_t j) const {
    return i < rows && j < known && (!z.causal || j <= i);
  }
};

__device__ inline std::int64_t Least(std::int64_t a, std::int64_t b) { return a < b ? a : b; }

template <typename T, typename Tile>
__global__ void __launch_bounds__(kThreads)
    AttentionKernel(AttentionSize z, float scale, const T* q, const T* k, const T* v,
                    const std::int32_t* lengths, T* y, float* lse) {
  __shared__ typename Tile::Own rows;
  __shared__ typename Tile::Other keys;  // then their values
  __shared__ typename Tile::Weights weights;
  const Head head = Head::Make(z, lengths, Tile::kOwn);
  LoadTile(q + head.in, z.step, head.first, head.rows, z.width, rows);
  float sums[Tile::kOwnEach][Tile::kWidthEach] = {};
  float tops[Tile::kOwnEach];
  float totals[Tile::kOwnEach] = {};
#pragma unroll
  for (int i = 0; i < Tile::kOwnEach; ++i) tops[i] = -INFINITY;
  const std::int64_t seen = z.causal ? Least(head.first + Tile::kOwn, head.known) : head.known;
  const std::int64_t end = head.first < head.rows ? seen : 0;
  for (std::int64_t key = 0; key < end; key += Tile::kOther) {
    LoadTile(k + head.in, z.step, key, head.known, z.width, keys);
    __syncthreads();
    float s[Tile::kOwnEach][Tile::kOtherEach];
    Products(rows, keys, s);
#pragma unroll
    for (int i = 0; i < Tile::kOwnEach; ++i) {
      const int row = ThreadRow() + i * kSide;
      float top = -INFINITY;
#pragma unroll
      for (int j = 0; j < Tile::kOtherEach; ++j) {
        const bool sees = head.Attends(z, head.first + row, key + ThreadColumn() + j * kSide);
        s[i][j] = sees ? s[i][j] * scale : -INFINITY;
        top = fmaxf(top, s[i][j]);
      }
      top = fmaxf(tops[i], TileRowMax(top));
      // A row that attends to no key (beyond the length) has no largest value.
      const float base = top == -INFINITY ? 0.0F : top;
      const float factor = expf(tops[i] - base);
      float total = 0;
#pragma unroll
      for (int j = 0; j < Tile::kOtherEach; ++j) {
        const float p = expf(s[i][j] - base);
        weights[row][ThreadColumn() + j * kSide] = p;
        total += p;
      }
      totals[i] = totals[i] * factor + TileRowSum(total);
      tops[i] = top;
#pragma unroll
      for (int c = 0; c < Tile::kWidthEach; ++c) sums[i][c] *= factor;
    }
    __syncthreads();  // all threads have used the keys and written the weights
    LoadTile(v + head.in, z.step, key, head.known, z.width, keys);
    __syncthreads();
    AddProducts(weights, keys, sums);
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < Tile::kOwnEach; ++i) {
    const std::int64_t row = head.first + ThreadRow() + i * kSide;
    const bool is_known = row < head.rows;
#pragma unroll
    for (int c = 0; c < Tile::kWidthEach; ++c) sums[i][c] = is_known ? sums[i][c] / totals[i] : 0;
    if (row < z.length && ThreadColumn() == 0) {
      lse[head.sums + row] = is_known ? tops[i] + logf(totals[i]) : 0.0F;
    }
  }
  StoreRows(sums, y + head.out, z.heads * z.width, head.first, z.length, z.width);
}

// delta = dy . y of every row and head, one warp each; in the order of lse.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    AttentionDeltaKernel(AttentionSize z, const T* dy, const T* y, float* delta) {
  const std::int64_t warps = static_cast<std::int64_t>(gridDim.x) * (kThreads / kWarp);
  const std::int64_t all = z.sequences * z.heads * z.length;
  std::int64_t n = static_cast<std::int64_t>(blockIdx.x) * (kThreads / kWarp) + threadIdx.x / kWarp;
  for (; n < all; n += warps) {
    const std::int64_t row = n / z.length / z.heads * z.length + n % z.length;
    const std::int64_t at = (row * z.heads + n / z.length % z.heads) * z.width;
    float sum = 0;
    for (std::int64_t d = threadIdx.x % kWarp; d < z.width; d += kWarp) {
      sum += ToFloat(dy[at + d]) * ToFloat(y[at + d]);
    }
    sum = WarpSum(sum);
    if (threadIdx.x % kWarp == 0) delta[n] = sum;
  }
}

// P of a row and a key, and dS times the scale: the terms of the gradients.
struct Pair {
  float p, ds;

  __device__ static Pair Make(bool sees, float s, float dp, float scale, float lse, float delta) {
    const float p = sees ? expf(s * scale - lse) : 0.0F;
    return {p, sees ? p * (dp - delta) * scale : 0.0F};
  }
};

template <typename T, typename Tile>
__global__ void __launch_bounds__(kThreads)
    AttentionRowsKernel(AttentionSize z, float scale, const T* dy, const float* lse,
                        const float* delta, const T* q, const T* k, const T* v,
                        const std::int32_t* lengths, T* dq) {
  __shared__ typename Tile::Own rows, gradients;
  __shared__ typename Tile::Other keys, values;
  __shared__ typename Tile::Weights weights;
  const Head head = Head::Make(z, lengths, Tile::kOwn);
  LoadTile(q + head.in, z.step, head.first, head.rows, z.width, rows);
  LoadTile(dy + head.out, z.heads * z.width, head.first, head.rows, z.width, gradients);
  float sums[Tile::kOwnEach][Tile::kWidthEach] = {};
  const std::int64_t seen = z.causal ? Least(head.first + Tile::kOwn, head.known) : head.known;
  const std::int64_t end = head.first < head.rows ? seen : 0;
  for (std::int64_t key = 0; key < end; key += Tile::kOther) {
    LoadTile(k + head.in, z.step, key, head.known, z.width, keys);
    LoadTile(v + head.in, z.step, key, head.known, z.width, values);
    __syncthreads();
    float s[Tile::kOwnEach][Tile::kOtherEach];
    float dp[Tile::kOwnEach][Tile::kOtherEach];
    Products(rows, keys, s);
    Products(gradients, values, dp);
#pragma unroll
    for (int i = 0; i < Tile::kOwnEach; ++i) {
      const int row = ThreadRow() + i * kSide;
      const std::int64_t at = Least(head.first + row, z.length - 1) + head.sums;
#pragma unroll
      for (int j = 0; j < Tile::kOtherEach; ++j) {
        const int column = ThreadColumn() + j * kSide;
        const bool sees = head.Attends(z, head.first + row, key + column);
        weights[row][column] = Pair::Make(sees, s[i][j], dp[i][j], scale, lse[at], delta[at]).ds;
      }
    }
    __syncthreads();
    AddProducts(weights, keys, sums);
    __syncthreads();
  }
  StoreRows(sums, dq + head.in, z.step, head.first, z.length, z.width);
}

// The block's tile consists of keys.
template <typename T, typename Tile>
__global__ void __launch_bounds__(kThreads)
    AttentionKeysKernel(AttentionSize z, float scale, const T* dy, const float* lse,
                        const float* delta, const T* q, const T* k, const T* v,
                        const std::int32_t* lengths, T* dk, T* dv) {
  __shared__ typename Tile::Own keys, values;
  __shared__ typename Tile::Other rows, gradients;
  __shared__ typename Tile::Weights p, ds;
  const Head head = Head::Make(z, lengths, Tile::kOwn);
  LoadTile(k + head.in, z.step, head.first, head.known, z.width, keys);
  LoadTile(v + head.in, z.step, head.first, head.known, z.width, values);
  float of_keys[Tile::kOwnEach][Tile::kWidthEach] = {};
  float of_values[Tile::kOwnEach][Tile::kWidthEach] = {};
  const std::int64_t begin = z.causal ? head.first / Tile::kOther * Tile::kOther : 0;
  const std::int64_t end = head.first < head.known ? head.rows : 0;
  for (std::int64_t row = begin; row < end; row += Tile::kOther) {
    LoadTile(q + head.in, z.step, row, head.rows, z.width, rows);
    LoadTile(dy + head.out, z.heads * z.width, row, head.rows, z.width, gradients);
    __syncthreads();
    float s[Tile::kOwnEach][Tile::kOtherEach];
    float dp[Tile::kOwnEach][Tile::kOtherEach];
    Products(keys, rows, s);
    Products(values, gradients, dp);
#pragma unroll
    for (int i = 0; i < Tile::kOwnEach; ++i) {
      const int key = ThreadRow() + i * kSide;
#pragma unroll
      for (int j = 0; j < Tile::kOtherEach; ++j) {
        const int column = ThreadColumn() + j * kSide;
        const std::int64_t at = Least(row + column, z.length - 1) + head.sums;
        const bool sees = head.Attends(z, row + column, head.first + key);
        const Pair pair = Pair::Make(sees, s[i][j], dp[i][j], scale, lse[at], delta[at]);
        p[key][column] = pair.p;
        ds[key][column] = pair.ds;
      }
    }
    __syncthreads();
    AddProducts(p, gradients, of_values);
    AddProducts(ds, rows, of_keys);
    __syncthreads();
  }
  StoreRows(of_keys, dk + head.in, z.step, head.first, z.length, z.width);
  StoreRows(of_values, dv + head.in, z.step, head.first, z.length, z.width);
}

using In = AttentionParts<const void*>;
using Out = AttentionParts<void*>;

LaunchShape ShapeFor(const AttentionSize& z, int own) {
  const std::int64_t tiles = (z.length + own - 1) / own;
  return {static_cast<unsigned>(z.sequences * z.heads * tiles), kThreads};
}

float SoftmaxScale(const AttentionSize& z) {
  return static_cast<float>(1 / std::sqrt(static_cast<double>(z.width)));
}

template <typename T, typename Tile>
Status Forward(const KernelStream& on, const AttentionSize& z, const In& in,
               const std::int32_t* lengths, void* y, float* lse) {
  return Launch(AttentionKernel<T, Tile>, ShapeFor(z, Tile::kOwn), on.stream, "attention", z,
                SoftmaxScale(z), static_cast<const T*>(in.q), static_cast<const T*>(in.k),
                static_cast<const T*>(in.v), lengths, static_cast<T*>(y), lse);
}

template <typename T, typename Tile>
Status Backward(const KernelStream& on, const AttentionSize& z, const void* dy, const void* y,
                const float* lse, const In& in, const std::int32_t* lengths, const Out& out,
                float* delta) {
  const auto* g = static_cast<const T*>(dy);
  const auto* q = static_cast<const T*>(in.q);
  const auto* k = static_cast<const T*>(in.k);
  const auto* v = static_cast<const T*>(in.v);
  const std::int64_t all = z.sequences * z.heads * z.length;
  const auto most = static_cast<unsigned>(on.multiprocessors) * 8;
  GACCD_RETURN_IF_ERROR(
      Launch(AttentionDeltaKernel<T>, {std::min(most, BlocksFor(all, kThreads / kWarp)), kThreads},
             on.stream, "attention_gradient", z, g, static_cast<const T*>(y), delta));
  GACCD_RETURN_IF_ERROR(Launch(AttentionRowsKernel<T, Tile>, ShapeFor(z, Tile::kOwn), on.stream,
                               "attention_gradient", z, SoftmaxScale(z), g, lse, delta, q, k, v,
                               lengths, static_cast<T*>(out.q)));
  return Launch(AttentionKeysKernel<T, Tile>, ShapeFor(z, Tile::kOwn), on.stream,
                "attention_gradient", z, SoftmaxScale(z), g, lse, delta, q, k, v, lengths,
                static_cast<T*>(out.k), static_cast<T*>(out.v));
}

// The largest tiles that fit into 48 KiB of shared memory.
template <typename T>
Status DispatchForward(const KernelStream& on, const AttentionSize& z, const In& in,
                       const std::int32_t* lengths, void* y, float* lse) {
  if (z.width <= 32) return Forward<T, Tiles<32, 64, 32>>(on, z, in, lengths, y, lse);
  if (z.width <= 64) return Forward<T, Tiles<64, 64, 32>>(on, z, in, lengths, y, lse);
  return Forward<T, Tiles<128, 32, 32>>(on, z, in, lengths, y, lse);
}

template <typename T>
Status DispatchBackward(const KernelStream& on, const AttentionSize& z, const void* dy,
                        const void* y, const float* lse, const In& in, const std::int32_t* lengths,
                        const Out& out, float* delta) {
  const auto backward = z.width <= 32   ? Backward<T, Tiles<32, 32, 32>>
                        : z.width <= 64 ? Backward<T, Tiles<64, 32, 32>>
                                        : Backward<T, Tiles<128, 16, 16>>;
  return backward(on, z, dy, y, lse, in, lengths, out, delta);
}

}  // namespace

Status EnqueueAttention(const KernelStream& on, DType dtype, const AttentionSize& size,
                        const AttentionParts<const void*>& in, const std::int32_t* lengths, void* y,
                        float* lse) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &DispatchForward<decltype(t)>; });
  return enqueue(on, size, in, lengths, y, lse);
}

Status EnqueueAttentionGradient(const KernelStream& on, DType dtype, const AttentionSize& size,
                                const void* dy, const void* y, const float* lse,
                                const AttentionParts<const void*>& in, const std::int32_t* lengths,
                                const AttentionParts<void*>& out, float* scratch) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &DispatchBackward<decltype(t)>; });
  return enqueue(on, size, dy, y, lse, in, lengths, out, scratch);
}

}  // namespace gaccd
