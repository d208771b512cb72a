// Sums and maxima over a warp, a block and a whole grid. Their order is fixed by the shape of the
// launch, so results are bit-identical from run to run. For kernels only, see launch.h.
#pragma once

#include <cuda_runtime_api.h>

namespace gaccd {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffU;

// Memory for sums over a grid, used by one kernel after another on one stream. `arrived` is zero
// between kernels: the last block resets it.
struct GridSums {
  static constexpr unsigned kMaxBlocks = 2048;
  static constexpr unsigned kMaxSums = 2;  // per kernel
  static constexpr std::size_t kBytes = 256 + kMaxSums * kMaxBlocks * sizeof(double);

  unsigned* arrived = nullptr;
  double* partials = nullptr;  // kMaxSums * kMaxBlocks values

  // memory: kBytes of GPU memory, zeroed before the first use, aligned to 256 bytes.
  [[nodiscard]] static GridSums At(void* memory) {
    return {static_cast<unsigned*>(memory),
            reinterpret_cast<double*>(static_cast<char*>(memory) + 256)};
  }
};

#if defined(__CUDACC__) || defined(GACCD_SIMT_EMULATION)

// Result in all lanes.
template <typename T>
__device__ inline T WarpSum(T value) {
  for (int bits = 16; bits > 0; bits /= 2) value += __shfl_xor_sync(kAllLanes, value, bits);
  return value;
}
__device__ inline float WarpMax(float value) {
  for (int bits = 16; bits > 0; bits /= 2) {
    value = fmaxf(value, __shfl_xor_sync(kAllLanes, value, bits));
  }
  return value;
}

// Result in thread 0. Call once per kernel, or with __syncthreads() in between.
__device__ inline double BlockSum(double value) {
  __shared__ double warps[kWarp];
  const unsigned lane = threadIdx.x % kWarp;
  value = WarpSum(value);
  if (lane == 0) warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  if (threadIdx.x >= kWarp) return 0;
  return WarpSum(lane < blockDim.x / kWarp ? warps[lane] : 0.0);
}

// Sums the `sums` of thread 0 of every block. Returns true in all threads of the last block, whose
// thread 0 then has the sums over the grid in `sums`. REQUIRES: gridDim.x <= kMaxBlocks; called
// once per kernel.
template <unsigned kSums>
__device__ inline bool GridSum(double (&sums)[kSums], unsigned* arrived, double* partials) {
  static_assert(kSums <= GridSums::kMaxSums);
  __shared__ bool is_last;
  if (threadIdx.x == 0) {
    for (unsigned s = 0; s < kSums; ++s) partials[s * gridDim.x + blockIdx.x] = sums[s];
    __threadfence();  // partial sums must be visible before the block is counted
    is_last = atomicAdd(arrived, 1U) == gridDim.x - 1;
  }
  __syncthreads();
  if (!is_last) return false;
  __threadfence();
  const volatile double* of_blocks = partials;  // volatile: not from a cache of this multiprocessor
  for (unsigned s = 0; s < kSums; ++s) {
    double sum = 0;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += blockDim.x) {
      sum += of_blocks[s * gridDim.x + i];
    }
    if (s > 0) __syncthreads();  // BlockSum() reuses its shared memory
    sums[s] = BlockSum(sum);
  }
  if (threadIdx.x == 0) *arrived = 0;
  return true;
}
__device__ inline bool GridSum(double of_block, unsigned* arrived, double* partials,
                               double* total) {
  double sums[1] = {of_block};
  const bool is_last = GridSum(sums, arrived, partials);
  *total = sums[0];
  return is_last;
}

#endif

}  // namespace gaccd
