// One kernel per input, one thread per value.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/layout/concat.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// y: address of the first column of x in its first row.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ConcatKernel(const T* x, std::int64_t columns, T* y, std::int64_t all, std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride())
    y[i / columns * all + i % columns] = x[i];
}

}  // namespace

KernelResult MakeConcatCuda(const CudaRequest& request) {
  Shape columns;
  for (const ValueSpec& input : request.inputs) columns.push_back(input.shape[1]);
  const Shape y = request.outputs[0].shape;
  return MakeTypedCall(request, [=, on = request.on](auto t, const Call& c) -> Status {
    using T = decltype(t);
    std::int64_t first = 0;
    for (std::size_t i = 0; i < columns.size(); ++i) {
      const std::int64_t n = y[0] * columns[i];
      GACCD_RETURN_IF_ERROR(LaunchForEach(ConcatKernel<T>, on, n, "concat", c.in<T>(i), columns[i],
                                          c.out<T>(0) + first, y[1], n));
      first += columns[i];
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
