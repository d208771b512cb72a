#include "collectives/base/simd.h"
#include "daemon/ops/attention/rotary.h"
#include "daemon/ops/call_kernel.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Rotates one row; y may alias x.
template <bool kTransposed>
GACCD_SIMD_CLONES void RotateRow(const float* x, const float* cos, const float* sin,
                                 std::int64_t half, float* y) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t d = 0; d < half; ++d) {
    const float first = x[d];
    const float second = x[d + half];
    const float to_first = kTransposed ? sin[d + half] : -sin[d];
    const float to_second = kTransposed ? -sin[d] : sin[d + half];
    y[d] = first * cos[d] + second * to_first;
    y[d + half] = second * cos[d + half] + first * to_second;
  }
}

}  // namespace

KernelResult MakeRotaryCpu(const KernelRequest& request) {
  const RotaryOptions options = static_cast<const Rotary&>(request.function).options();
  const std::int64_t rows = request.inputs[0].shape[0];
  const std::int64_t columns = request.inputs[0].shape[1];
  return MakeCall(request, [=](const Call& c) {
    const auto rotate = options.transposed ? &RotateRow<true> : &RotateRow<false>;
    for (std::int64_t n = 0; n < rows; ++n) {
      const std::int64_t angles = n / options.group % options.length * columns;
      rotate(c.in<float>(0) + n * columns, c.in<float>(1) + angles, c.in<float>(2) + angles,
             columns / 2, c.out<float>(0) + n * columns);
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
