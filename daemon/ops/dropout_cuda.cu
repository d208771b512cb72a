// Dropout: the key of a sample costs more than its elements, so a thread takes many of one sample.
#include <algorithm>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/sequence_kernels_cuda.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

constexpr unsigned kThreads = 256;
constexpr std::int64_t kPairsPerThread = 8;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    DropoutKernel(const T* x, const std::int64_t* ids, const std::int64_t* update,
                  std::int64_t elements, std::int64_t parts, DropoutMask mask, std::uint64_t seed,
                  std::uint64_t layer, T* y) {
  const std::int64_t sample = blockIdx.x / parts;
  const std::int64_t part = blockIdx.x % parts;
  mask.layer = StreamKey(StreamKey(seed, static_cast<std::uint64_t>(*update)), layer);
  const std::uint64_t key = mask.SampleKey(ids[sample]);
  const T* from = x + sample * elements;
  T* to = y + sample * elements;
  const std::int64_t pairs = (elements + 1) / 2;
  for (std::int64_t i = part * kThreads + threadIdx.x; i < pairs; i += parts * kThreads) {
    to[2 * i] = FromFloat<T>(ToFloat(from[2 * i]) * mask.First(key, i));
    if (2 * i + 1 < elements) {
      to[2 * i + 1] = FromFloat<T>(ToFloat(from[2 * i + 1]) * mask.Second(key, i));
    }
  }
}

template <typename T>
Status DropoutOf(const KernelStream& on, const void* x, const std::int64_t* ids,
                 const std::int64_t* update, std::int64_t samples, std::int64_t elements,
                 const DropoutMask& mask, std::uint64_t seed, std::uint64_t layer, void* y) {
  const std::int64_t parts = BlocksFor(elements, 2 * kThreads * kPairsPerThread);
  return Launch(DropoutKernel<T>, {static_cast<unsigned>(samples * parts), kThreads}, on.stream,
                "dropout", static_cast<const T*>(x), ids, update, elements, parts, mask, seed,
                layer, static_cast<T*>(y));
}

}  // namespace

Status EnqueueDropout(const KernelStream& on, DType dtype, const void* x, const std::int64_t* ids,
                      const std::int64_t* update, std::int64_t samples, std::int64_t elements,
                      const DropoutMask& mask, std::uint64_t seed, std::uint64_t layer, void* y) {
  const auto enqueue = WithFloat(dtype, [](auto t) { return &DropoutOf<decltype(t)>; });
  return enqueue(on, x, ids, update, samples, elements, mask, seed, layer, y);
}

}  // namespace gaccd
