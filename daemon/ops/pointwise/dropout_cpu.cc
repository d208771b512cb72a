#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/pointwise/dropout.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Elements whose position in their sample begins at 2 `pair`. y may alias x. `mask` is a copy, as y
// could alias it.
GACCD_SIMD_CLONES
void DropPairs(const DropoutMask mask, std::uint64_t key, std::int64_t pair, const float* x,
               std::int64_t elements, float* y) {
  const std::int64_t pairs = elements / 2;
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < pairs; ++i) {
    y[2 * i] = x[2 * i] * mask.First(key, pair + i);
    y[2 * i + 1] = x[2 * i + 1] * mask.Second(key, pair + i);
  }
  if (elements % 2 != 0) y[elements - 1] = x[elements - 1] * mask.First(key, pair + pairs);
}

void DropSample(const DropoutMask& mask, std::uint64_t key, const DropoutPlaces& places,
                const float* x, std::int64_t elements, float* y) {
  const std::int64_t rows = places.width > 0 ? elements / places.width : 0;
  for (std::int64_t row = 0; row < rows; ++row, x += places.width, y += places.width) {
    const std::int64_t first = places.First(row);
    const std::int64_t odd = first % 2;
    if (odd != 0) y[0] = x[0] * mask.At(key, first);
    DropPairs(mask, key, (first + odd) / 2, x + odd, places.width - odd, y + odd);
  }
}

GACCD_SIMD_CLONES
void ScaleSample(float factor, const float* x, std::int64_t elements, float* y) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < elements; ++i) y[i] = factor * x[i];
}

}  // namespace

KernelResult MakeDropoutCpu(const KernelRequest& request) {
  const auto& dropout = static_cast<const Dropout&>(request.function);
  const DropoutOptions options = dropout.options();
  const DropoutMask drawn = dropout.MakeMask();
  const std::int64_t samples = request.inputs[1].shape[0];
  const std::int64_t elements = Elements(request.inputs[0].shape) / samples;
  GACCD_ASSIGN_OR_RETURN(const DropoutPlaces places, DropoutPlaces::Make(options.cut, elements));
  return MakeCall(request, [options, drawn, samples, elements, places](const Call& c) {
    DropoutMask mask = drawn;
    const auto update = static_cast<std::uint64_t>(*c.in<std::int64_t>(2));
    mask.layer = StreamKey(StreamKey(options.seed, update), options.layer);
    for (std::int64_t b = 0; b < samples; ++b) {
      const std::uint64_t key = mask.SampleKey(c.in<std::int64_t>(1)[b]);
      const float* x = c.in<float>(0) + b * elements;
      float* y = c.out<float>(0) + b * elements;
      options.whole_samples ? ScaleSample(mask.First(key, 0), x, elements, y)
                            : DropSample(mask, key, places, x, elements, y);
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
