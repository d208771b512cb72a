// One thread per written value.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/layout/prepend_row.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// y: sequences of `all` values, the first `columns` of which are `row`; null: zeros.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    PrependRowKernel(const T* x, const float* row, std::int64_t columns, std::int64_t all, T* y,
                     std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    const std::int64_t place = i % all;
    if (place < columns) {
      y[i] = FromFloat<T>(row != nullptr ? row[place] : 0.0F);
    } else {
      y[i] = x[i - (i / all + 1) * columns];
    }
  }
}

// y: sequences of `rest` values.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    DropFirstRowKernel(const T* x, std::int64_t columns, std::int64_t rest, T* y,
                       std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride())
    y[i] = x[i + (i / rest + 1) * columns];
}

}  // namespace

KernelResult MakePrependRowCuda(const CudaRequest& request) {
  const std::int64_t columns = request.size().columns;
  const std::int64_t length = static_cast<const PrependRow&>(request.function).length();
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return MakeTypedCall(request, [on = request.on, columns, elements, all = (length + 1) * columns](
                                    auto t, const Call& c) {
    using T = decltype(t);
    return LaunchForEach(PrependRowKernel<T>, on, elements, "prepend_row", c.in<T>(0),
                         c.optional_in<float>(1), columns, all, c.out<T>(0), elements);
  });
}

KernelResult MakeDropFirstRowCuda(const CudaRequest& request) {
  const std::int64_t columns = request.size().columns;
  const std::int64_t length = static_cast<const DropFirstRow&>(request.function).length();
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return MakeTypedCall(request, [on = request.on, columns, elements, rest = (length - 1) * columns](
                                    auto t, const Call& c) {
    using T = decltype(t);
    return LaunchForEach(DropFirstRowKernel<T>, on, elements, "drop_first_row", c.in<T>(0), columns,
                         rest, c.out<T>(0), elements);
  });
}

}  // namespace gaccd
