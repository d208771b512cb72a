#include "daemon/device/cuda/launch.h"
#include "daemon/ops/attention/rotary.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// One thread per pair of values, d and d + half; y may alias x.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    RotaryKernel(const T* x, const float* cos, const float* sin, RotaryOptions options,
                 std::int64_t rows, std::int64_t half, T* y) {
  for (std::int64_t i = GridIndex(); i < rows * half; i += GridStride()) {
    const std::int64_t n = i / half;
    const std::int64_t first = i % half + n * 2 * half;
    const std::int64_t a = i % half + n / options.group % options.length * 2 * half;
    const float of_first = ToFloat(x[first]);
    const float of_second = ToFloat(x[first + half]);
    const float to_first = options.transposed ? sin[a + half] : -sin[a];
    const float to_second = options.transposed ? -sin[a] : sin[a + half];
    y[first] = FromFloat<T>(of_first * cos[a] + of_second * to_first);
    y[first + half] = FromFloat<T>(of_second * cos[a + half] + of_first * to_second);
  }
}

}  // namespace

KernelResult MakeRotaryCuda(const CudaRequest& request) {
  const RotaryOptions options = static_cast<const Rotary&>(request.function).options();
  return MakeTypedCall(
      request, [options, on = request.on, size = request.size()](auto t, const Call& c) {
        using T = decltype(t);
        const std::int64_t half = size.columns / 2;
        const std::int64_t pairs = size.rows * half;
        if (pairs == 0) return Status::Ok();
        return LaunchForEach(RotaryKernel<T>, on, pairs, "rotary", c.in<T>(0), c.in<float>(1),
                             c.in<float>(2), options, size.rows, half, c.out<T>(0));
      });
}

}  // namespace gaccd
