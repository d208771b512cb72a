// Tiles of attention_cuda.cu in shared memory, and their products. 256 threads form a square of
// 16 x 16: thread (i, j) has the rows i, i + 16, ... of its tile and the columns j, j + 16, ... of
// the result.
#pragma once

#include <cstdint>

#include "daemon/device/cuda/launch.h"
#include "daemon/tensor/float_types.h"

namespace gaccd::attention {

constexpr int kSide = 16;
static_assert(kThreads == kSide * kSide);

// For heads of up to kWidth values; kOwn rows per block, kOther rows per iteration.
template <int kMaxWidth, int kOwnRows, int kOtherRows>
struct Tiles {
  static constexpr int kWidth = kMaxWidth;
  static constexpr int kOwn = kOwnRows;
  static constexpr int kOther = kOtherRows;
  static constexpr int kOwnEach = kOwn / kSide;  // per thread
  static constexpr int kOtherEach = kOther / kSide;
  static constexpr int kWidthEach = kWidth / kSide;
  // One more than the width, so that a column of many rows is spread over many banks.
  using Own = float[kOwn][kWidth + 1];
  using Other = float[kOther][kWidth + 1];
  using Weights = float[kOwn][kOther + 1];
};

__device__ inline int ThreadRow() { return static_cast<int>(threadIdx.x) / kSide; }
__device__ inline int ThreadColumn() { return static_cast<int>(threadIdx.x) % kSide; }

// Loads rows [first, first + kRows) of a matrix to shared memory; 0 from row `end` and column
// `width` on.
template <typename T, int kRows, int kColumns>
__device__ inline void LoadTile(const T* from, std::int64_t step, std::int64_t first,
                                std::int64_t end, std::int64_t width,
                                float (&to)[kRows][kColumns]) {
  for (int i = static_cast<int>(threadIdx.x); i < kRows * (kColumns - 1);
       i += static_cast<int>(kThreads)) {
    const int row = i / (kColumns - 1);
    const int column = i % (kColumns - 1);
    const bool is_there = first + row < end && column < width;
    to[row][column] = is_there ? ToFloat(from[(first + row) * step + column]) : 0.0F;
  }
}

// products[i][j] = a[row i] . b[row j], for the thread's rows of both.
template <int kA, int kB, int kARows, int kBRows, int kColumns>
__device__ inline void Products(const float (&a)[kARows][kColumns],
                                const float (&b)[kBRows][kColumns], float (&products)[kA][kB]) {
#pragma unroll
  for (int i = 0; i < kA; ++i) {
#pragma unroll
    for (int j = 0; j < kB; ++j) products[i][j] = 0;
  }
#pragma unroll 4
  for (int d = 0; d < kColumns - 1; ++d) {
    float right[kB];
#pragma unroll
    for (int j = 0; j < kB; ++j) right[j] = b[ThreadColumn() + j * kSide][d];
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      const float left = a[ThreadRow() + i * kSide][d];
#pragma unroll
      for (int j = 0; j < kB; ++j) products[i][j] += left * right[j];
    }
  }
}

// sums[i][c] += sum over k of weights[row i][k] b[k][column c].
template <int kA, int kC, int kARows, int kBRows, int kColumns>
__device__ inline void AddProducts(const float (&weights)[kARows][kBRows + 1],
                                   const float (&b)[kBRows][kColumns], float (&sums)[kA][kC]) {
#pragma unroll 4
  for (int k = 0; k < kBRows; ++k) {
    float right[kC];
#pragma unroll
    for (int c = 0; c < kC; ++c) right[c] = b[k][ThreadColumn() + c * kSide];
#pragma unroll
    for (int i = 0; i < kA; ++i) {
      const float left = weights[ThreadRow() + i * kSide][k];
#pragma unroll
      for (int c = 0; c < kC; ++c) sums[i][c] += left * right[c];
    }
  }
}

// Writes the thread's part of the rows [first, ...) below `end`.
template <typename T, int kA, int kC>
__device__ inline void StoreRows(const float (&values)[kA][kC], T* to, std::int64_t step,
                                 std::int64_t first, std::int64_t end, std::int64_t width) {
#pragma unroll
  for (int i = 0; i < kA; ++i) {
    const std::int64_t row = first + ThreadRow() + i * kSide;
#pragma unroll
    for (int c = 0; c < kC; ++c) {
      const int column = ThreadColumn() + c * kSide;
      if (row < end && column < width) to[row * step + column] = FromFloat<T>(values[i][c]);
    }
  }
}

// Sum and maximum over the 16 threads of a row, which are half a warp.
__device__ inline float TileRowSum(float value) {
  for (int bits = kSide / 2; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}
__device__ inline float TileRowMax(float value) {
  for (int bits = kSide / 2; bits > 0; bits /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, bits));
  }
  return value;
}

}  // namespace gaccd::attention
