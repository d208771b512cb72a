#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/pointwise/dropout.h"
#include "daemon/ops/pointwise/elementwise.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// y may be x.
GACCD_SIMD_CLONES
void DropSample(const DropoutMask& mask, std::uint64_t key, const float* x, std::int64_t elements,
                float* y) {
  const std::int64_t pairs = elements / 2;
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < pairs; ++i) {
    y[2 * i] = x[2 * i] * mask.First(key, i);
    y[2 * i + 1] = x[2 * i + 1] * mask.Second(key, i);
  }
  if (elements % 2 != 0) y[elements - 1] = x[elements - 1] * mask.First(key, pairs);
}

GACCD_SIMD_CLONES
void ScaleSample(float factor, const float* x, std::int64_t elements, float* y) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < elements; ++i) y[i] = factor * x[i];
}

}  // namespace

KernelResult MakeDropoutCpu(const KernelRequest& request) {
  const DropoutOptions options = static_cast<const Dropout&>(request.function).options();
  const auto kept = DropoutMask::For(static_cast<double>(options.probability));
  const std::int64_t samples = request.inputs[1].shape[0];
  const std::int64_t elements = Elements(request.inputs[0].shape) / samples;
  return MakeCall(request, [options, kept, samples, elements](const Call& c) {
    DropoutMask mask = kept;
    const auto update = static_cast<std::uint64_t>(*c.in<std::int64_t>(2));
    mask.layer = StreamKey(StreamKey(options.seed, update), options.layer);
    for (std::int64_t b = 0; b < samples; ++b) {
      const std::uint64_t key = mask.SampleKey(c.in<std::int64_t>(1)[b]);
      const float* x = c.in<float>(0) + b * elements;
      float* y = c.out<float>(0) + b * elements;
      options.whole_samples ? ScaleSample(mask.First(key, 0), x, elements, y)
                            : DropSample(mask, key, x, elements, y);
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
