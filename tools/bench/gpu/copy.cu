// The plainest kernel that moves memory: with it the others are compared.
#include <cuda_runtime_api.h>

#include "daemon/device/cuda/launch.h"
#include "tools/bench/gpu/gpu_case.h"

namespace gaccd {
namespace {

constexpr unsigned kCopyThreads = 512;
constexpr int kPieces = 4;  // 16-byte loads of a thread that are in_flight together

__global__ void __launch_bounds__(kCopyThreads)
    CopyKernel(const uint4* from, uint4* to, std::int64_t count) {
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kCopyThreads * kPieces + threadIdx.x;
  uint4 pieces[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const std::int64_t i = first + static_cast<std::int64_t>(p) * kCopyThreads;
    if (i < count) pieces[p] = from[i];
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const std::int64_t i = first + static_cast<std::int64_t>(p) * kCopyThreads;
    if (i < count) to[i] = pieces[p];
  }
}

}  // namespace

Status EnqueueCopy(cudaStream_t stream, const void* from, void* to, std::int64_t bytes) {
  const std::int64_t count = bytes / 16;
  return Launch(CopyKernel,
                {BlocksFor(count, static_cast<long long>(kCopyThreads) * kPieces), kCopyThreads},
                stream, "copy", static_cast<const uint4*>(from), static_cast<uint4*>(to), count);
}

}  // namespace gaccd
