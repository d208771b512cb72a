// Launch: starts a kernel on a stream. All kernels are started here, so that they can also run on
// the CPU in tests: the compiler then includes tests/standin/simt.h first (-include) and
// GACCD_SIMT_EMULATION is set.
//
// The emulation relies on these rules for kernels: one-dimensional blocks with a multiple of 32
// threads; warp operations by all 32 threads of a warp, __syncthreads() by all threads of the
// block; shared memory as static __shared__ arrays; no float atomics, so that sums have a fixed
// order; blocks are counted by an integer atomic, with a __threadfence() of that thread before it
// and of every thread of the last block after it.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"

namespace gaccd {

constexpr unsigned kThreads = 256;  // default number of threads per block
constexpr unsigned kWarps = kThreads / 32;

struct LaunchShape {
  unsigned blocks = 1;
  unsigned threads = kThreads;  // per block
};

// The number of blocks for `work` items if each block processes `per_block`; at least 1.
[[nodiscard]] constexpr unsigned BlocksFor(long long work, long long per_block) {
  const long long blocks = (work + per_block - 1) / per_block;
  return static_cast<unsigned>(blocks < 1 ? 1 : blocks);
}

#if defined(__CUDACC__) || defined(GACCD_SIMT_EMULATION)
// This thread in the grid, and the number of threads of the grid, for loops that share the work of
// any size: for (std::int64_t i = GridIndex(); i < count; i += GridStride()).
template <typename Index = std::int64_t>
__device__ inline Index GridIndex() {
  return static_cast<Index>(blockIdx.x) * blockDim.x + threadIdx.x;
}
template <typename Index = std::int64_t>
__device__ inline Index GridStride() {
  return static_cast<Index>(gridDim.x) * blockDim.x;
}

// kOs: no memory, also for the code of a kernel, which is loaded at its first start. May report an
// error of an earlier kernel: `what` is where it was detected.
template <typename... Parameters, typename... Arguments>
Status Launch(void (*kernel)(Parameters...), LaunchShape shape, cudaStream_t stream,
              const char* what, Arguments... arguments) {
#if defined(GACCD_SIMT_EMULATION)
  simt::Enqueue(stream, shape.blocks, shape.threads, what,
                [=] { kernel(static_cast<Parameters>(arguments)...); },
                {simt::ArgumentPointer(arguments)...});
#else
  // clang-format off
  kernel<<<shape.blocks, shape.threads, 0, stream>>>(static_cast<Parameters>(arguments)...);
  // clang-format on
#endif
  return CudaStatus(cudaGetLastError(), what);
}
#endif

}  // namespace gaccd
