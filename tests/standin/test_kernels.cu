#include <cuda_bf16.h>

#include "daemon/device/cuda/launch.h"
#include "daemon/tensor/vector_cuda.h"
#include "tests/standin/test_kernels.h"

namespace gaccd::standin_test {
namespace {

__global__ void AxpyKernel(int n, float a, const float* __restrict__ x, float* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] += a * __ldg(&x[i]);
}

__device__ float WarpSum(float value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffU, value, step);
  return value;
}

__device__ float BlockSum(float value) {
  __shared__ float warps[32];
  value = WarpSum(value);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < blockDim.x / 32 ? warps[threadIdx.x] : 0.0F;
  if (threadIdx.x < 32) value = WarpSum(value);
  __syncthreads();
  return value;  // of thread 0
}

__device__ float MyElements(int n, const float* x) {
  float sum = 0;
  for (int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); i < n;
       i += static_cast<int>(gridDim.x * blockDim.x)) {
    sum += x[i];
  }
  return sum;
}

__global__ void __launch_bounds__(1024) BlockSumsKernel(int n, const float* x, float* sums) {
  const float sum = BlockSum(MyElements(n, x));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

__global__ void LastBlockKernel(int n, const float* x, float* partial, unsigned* blocks_done,
                                float* sum, LastBlockFences fences) {
  __shared__ bool last;
  const float mine = BlockSum(MyElements(n, x));
  if (threadIdx.x == 0) {
    partial[blockIdx.x] = mine;
    if (fences != LastBlockFences::kNoneBefore) __threadfence();
    last = atomicInc(blocks_done, gridDim.x - 1) == gridDim.x - 1;
  }
  __syncthreads();
  if (!last) return;
  if (fences != LastBlockFences::kNoneAfter) __threadfence();
  const float total = BlockSum(threadIdx.x < gridDim.x ? partial[threadIdx.x] : 0.0F);
  if (threadIdx.x == 0) *sum = total;
}

__global__ void ReverseKernel(const int* x, int* out) {
  __shared__ int row[1024];
  row[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
}

__global__ void VotesKernel(int n, const int* x, unsigned* out) {
  const int value = x[threadIdx.x];
  out[threadIdx.x] = __ballot_sync(0xffffffffU, value != 0);
  out[static_cast<unsigned>(n) + threadIdx.x] =
      static_cast<unsigned>(__shfl_down_sync(0xffffffffU, value, 1));
}

__global__ void DoubleBf16Kernel(const __nv_bfloat16* x, __nv_bfloat16* out) {
  out[threadIdx.x] = __float2bfloat16(__bfloat162float(x[threadIdx.x]) * 2.0F);
}

__global__ void BarrierForSomeKernel(int* out) {
  if (threadIdx.x < 40) __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void TwoBarriersKernel(int* out) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  out[threadIdx.x] = 1;
}

__global__ void HalfWarpKernel(int* out) {
  if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(0xffffffffU, 1, 0);
}

__global__ void ShuffleAndVoteKernel(int* out) {
  if (threadIdx.x < 16) {
    out[threadIdx.x] = __shfl_sync(0xffffffffU, 1, 0);
  } else {
    out[threadIdx.x] = static_cast<int>(__ballot_sync(0xffffffffU, 1));
  }
}

__global__ void SmallMaskKernel(int* out) { out[threadIdx.x] = __shfl_sync(0xffffU, 1, 0); }

__global__ void BeyondTheEndKernel(int n, float* out) { out[n] = 1; }

__device__ int Deep(int levels) {
  volatile char room[1024];
  room[0] = static_cast<char>(levels);
  return levels == 0 ? 0 : Deep(levels - 1) + room[0];
}

__global__ void DeepRecursionKernel(int* out) { out[threadIdx.x] = Deep(100000); }

__global__ void MisalignedVectorKernel(float* values, bool write) {
  float vector[4] = {};
  if (write) Store<Use::kAgain>(values + 1, vector);
  Load<Use::kAgain>(values + 1, vector);
}

}  // namespace

Status Axpy(cudaStream_t stream, int n, float a, const float* x, float* y) {
  return Launch(&AxpyKernel, {BlocksFor(n, 256), 256}, stream, "axpy", n, a, x, y);
}
Status BlockSums(cudaStream_t stream, int n, const float* x, float* sums, unsigned blocks,
                 unsigned threads) {
  return Launch(&BlockSumsKernel, {blocks, threads}, stream, "block sums", n, x, sums);
}
Status SumByLastBlock(cudaStream_t stream, int n, const float* x, float* partial,
                      unsigned* blocks_done, float* sum, unsigned blocks, LastBlockFences fences) {
  return Launch(&LastBlockKernel, {blocks, 128}, stream, "sum by last block", n, x, partial,
                blocks_done, sum, fences);
}
Status Reverse(cudaStream_t stream, int n, const int* x, int* out) {
  return Launch(&ReverseKernel, {1, static_cast<unsigned>(n)}, stream, "reverse", x, out);
}
Status Votes(cudaStream_t stream, int n, const int* x, unsigned* out) {
  return Launch(&VotesKernel, {1, static_cast<unsigned>(n)}, stream, "votes", n, x, out);
}
Status DoubleBf16(cudaStream_t stream, int n, const void* x, void* out) {
  return Launch(&DoubleBf16Kernel, {1, static_cast<unsigned>(n)}, stream, "double bf16",
                static_cast<const __nv_bfloat16*>(x), static_cast<__nv_bfloat16*>(out));
}
Status BarrierForSome(cudaStream_t stream, int* out) {
  return Launch(&BarrierForSomeKernel, {1, 64}, stream, "barrier for some", out);
}
Status TwoBarriers(cudaStream_t stream, int* out) {
  return Launch(&TwoBarriersKernel, {1, 64}, stream, "two barriers", out);
}
Status ShuffleOfHalfAWarp(cudaStream_t stream, int* out) {
  return Launch(&HalfWarpKernel, {1, 32}, stream, "half a warp", out);
}
Status ShuffleAndVote(cudaStream_t stream, int* out) {
  return Launch(&ShuffleAndVoteKernel, {1, 32}, stream, "shuffle and vote", out);
}
Status SmallMask(cudaStream_t stream, int* out) {
  return Launch(&SmallMaskKernel, {1, 32}, stream, "small mask", out);
}
Status BeyondTheEnd(cudaStream_t stream, int n, float* out) {
  return Launch(&BeyondTheEndKernel, {1, 32}, stream, "beyond the end", n, out);
}
Status DeepRecursion(cudaStream_t stream, int* out) {
  return Launch(&DeepRecursionKernel, {1, 32}, stream, "deep recursion", out);
}
Status MisalignedVector(cudaStream_t stream, float* values, bool write) {
  return Launch(&MisalignedVectorKernel, {1, 32}, stream, "misaligned vector", values, write);
}

}  // namespace gaccd::standin_test
