// Dropout: computing the key of a sample costs more than its elements, so a thread processes many
// elements of one sample.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/dropout.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

constexpr std::int64_t kPairsPerThread = 8;

template <typename T>
__global__ void __launch_bounds__(kThreads)
    DropoutKernel(const T* x, const std::int64_t* ids, const std::int64_t* update,
                  std::int64_t elements, std::int64_t parts, DropoutMask mask, std::uint64_t seed,
                  std::uint64_t layer, bool whole_samples, T* y) {
  const std::int64_t sample = blockIdx.x / parts;
  const std::int64_t part = blockIdx.x % parts;
  mask.layer = StreamKey(StreamKey(seed, static_cast<std::uint64_t>(*update)), layer);
  const std::uint64_t key = mask.SampleKey(ids[sample]);
  const T* from = x + sample * elements;
  T* to = y + sample * elements;
  const std::int64_t pairs = (elements + 1) / 2;
  for (std::int64_t i = part * kThreads + threadIdx.x; i < pairs; i += parts * kThreads) {
    const float first = mask.First(key, whole_samples ? 0 : i);
    to[2 * i] = FromFloat<T>(ToFloat(from[2 * i]) * first);
    if (2 * i + 1 < elements) {
      const float second = whole_samples ? first : mask.Second(key, i);
      to[2 * i + 1] = FromFloat<T>(ToFloat(from[2 * i + 1]) * second);
    }
  }
}

// For a cut sample, in which pairs may be separated.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    CutDropoutKernel(const T* x, const std::int64_t* ids, const std::int64_t* update,
                     std::int64_t elements, std::int64_t parts, DropoutMask mask,
                     std::uint64_t seed, std::uint64_t layer, DropoutPlaces places, T* y) {
  const std::int64_t sample = blockIdx.x / parts;
  const std::int64_t part = blockIdx.x % parts;
  mask.layer = StreamKey(StreamKey(seed, static_cast<std::uint64_t>(*update)), layer);
  const std::uint64_t key = mask.SampleKey(ids[sample]);
  for (std::int64_t i = part * kThreads + threadIdx.x; i < elements; i += parts * kThreads) {
    const float m = mask.At(key, places.First(i / places.width) + i % places.width);
    y[sample * elements + i] = FromFloat<T>(ToFloat(x[sample * elements + i]) * m);
  }
}

}  // namespace

KernelResult MakeDropoutCuda(const CudaRequest& request) {
  const auto& dropout = static_cast<const Dropout&>(request.function);
  const DropoutOptions options = dropout.options();
  const std::int64_t samples = request.inputs[1].shape[0];
  const std::int64_t elements = request.elements() / samples;
  const std::int64_t parts = BlocksFor(elements, 2 * kThreads * kPairsPerThread);
  const LaunchShape shape{static_cast<unsigned>(samples * parts), kThreads};
  GACCD_ASSIGN_OR_RETURN(const DropoutPlaces places, DropoutPlaces::Make(options.cut, elements));
  return MakeTypedCall(
      request, [=, stream = request.on.stream, mask = dropout.MakeMask()](auto t, const Call& c) {
        using T = decltype(t);
        if (places.width != elements) {
          return Launch(CutDropoutKernel<T>, shape, stream, "dropout", c.in<T>(0),
                        c.in<std::int64_t>(1), c.in<std::int64_t>(2), elements, parts, mask,
                        options.seed, options.layer, places, c.out<T>(0));
        }
        return Launch(DropoutKernel<T>, shape, stream, "dropout", c.in<T>(0), c.in<std::int64_t>(1),
                      c.in<std::int64_t>(2), elements, parts, mask, options.seed, options.layer,
                      options.whole_samples, c.out<T>(0));
      });
}

}  // namespace gaccd
