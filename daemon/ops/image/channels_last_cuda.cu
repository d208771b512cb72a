// One thread per written value.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/image/channels_last.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Transposes matrices [rows, columns] to [columns, rows].
template <typename T>
__global__ void __launch_bounds__(kThreads)
    TransposeKernel(const T* from, std::int64_t elements, std::int64_t rows, std::int64_t columns,
                    T* to) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    const std::int64_t column = i / rows % columns;
    const std::int64_t matrix = i / (rows * columns) * (rows * columns);
    to[i] = from[matrix + i % rows * columns + column];
  }
}

KernelResult MakeTransposition(const CudaRequest& request, std::int64_t rows, std::int64_t columns,
                               const char* what) {
  return MakeTypedCall(request,
                       [=, on = request.on, n = request.elements()](auto t, const Call& c) {
                         using T = decltype(t);
                         return LaunchForEach(TransposeKernel<T>, on, n, what, c.in<T>(0), n, rows,
                                              columns, c.out<T>(0));
                       });
}

}  // namespace

KernelResult MakeChannelsLastCuda(const CudaRequest& request) {
  const Shape& x = request.inputs[0].shape;
  return MakeTransposition(request, x[1], x[2] * x[3], "channels_last");
}

KernelResult MakeChannelsFirstCuda(const CudaRequest& request) {
  const Shape& x = request.inputs[0].shape;
  return MakeTransposition(request, x[1] * x[2], x[3], "channels_first");
}

}  // namespace gaccd
