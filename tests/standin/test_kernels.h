// Kernels of each kind, to test the stand-ins with.
#pragma once

#include <cuda_runtime_api.h>

#include "collectives/base/result.h"

namespace gaccd::standin_test {

// y[i] += a * x[i]; no barrier.
Status Axpy(cudaStream_t stream, int n, float a, const float* x, float* y);
// sums[b] = sum of the elements that block b takes, by shuffles and shared memory.
Status BlockSums(cudaStream_t stream, int n, const float* x, float* sums, unsigned blocks,
                 unsigned threads);
// *sum = sum of x; the block that ends last adds up what all have left in `partial`.
enum class LastBlockFences { kBoth, kNoneBefore, kNoneAfter };
Status SumByLastBlock(cudaStream_t stream, int n, const float* x, float* partial,
                      unsigned* blocks_done, float* sum, unsigned blocks,
                      LastBlockFences fences = LastBlockFences::kBoth);
// out[t] = x[n - 1 - t], through shared memory, by one block of n threads.
Status Reverse(cudaStream_t stream, int n, const int* x, int* out);
// out[t] = the votes of t's warp for x[t] != 0; out[n + t] = x of the lane above; the last keeps
// its own.
Status Votes(cudaStream_t stream, int n, const int* x, unsigned* out);
// The same with bf16 values: out = bf16(float(x) * 2).
Status DoubleBf16(cudaStream_t stream, int n, const void* x, void* out);

// Kernels that break the rules.
Status BarrierForSome(cudaStream_t stream, int* out);
Status TwoBarriers(cudaStream_t stream, int* out);
Status ShuffleOfHalfAWarp(cudaStream_t stream, int* out);
Status ShuffleAndVote(cudaStream_t stream, int* out);
Status SmallMask(cudaStream_t stream, int* out);
Status BeyondTheEnd(cudaStream_t stream, int n, float* out);
Status DeepRecursion(cudaStream_t stream, int* out);
// Writes 16 bytes, or reads them, from the second element on.
Status MisalignedVector(cudaStream_t stream, float* values, bool write);

}  // namespace gaccd::standin_test
