// One thread per value of y: for small matrices, such as those of attention with a mask.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/product/batched_product.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// Elements from one row, column or matrix of op(m) to the next.
struct MatrixSteps {
  std::int64_t row = 0;
  std::int64_t column = 0;
  std::int64_t matrix = 0;
};

MatrixSteps MakeMatrixSteps(const Shape& stored, bool transpose) {
  return transpose ? MatrixSteps{1, stored[2], stored[1] * stored[2]}
                   : MatrixSteps{stored[2], 1, stored[1] * stored[2]};
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    BatchedProductKernel(const T* a, MatrixSteps a_steps, const T* b, MatrixSteps b_steps,
                         std::int64_t rows, std::int64_t columns, std::int64_t inner, T* y,
                         std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    const std::int64_t n = i / (rows * columns);
    const T* left = a + n * a_steps.matrix + i / columns % rows * a_steps.row;
    const T* right = b + n * b_steps.matrix + i % columns * b_steps.column;
    float sum = 0;
    for (std::int64_t k = 0; k < inner; ++k) {
      sum += ToFloat(left[k * a_steps.column]) * ToFloat(right[k * b_steps.row]);
    }
    y[i] = FromFloat<T>(sum);
  }
}

}  // namespace

KernelResult MakeBatchedProductCuda(const CudaRequest& request) {
  const auto& product = static_cast<const BatchedProduct&>(request.function);
  const Shape& a = request.inputs[0].shape;
  const Shape& y = request.outputs[0].shape;
  const std::int64_t inner = a[product.transpose_a() ? 1 : 2];
  return MakeTypedCall(
      request, [=, on = request.on, a_steps = MakeMatrixSteps(a, product.transpose_a()),
                b_steps = MakeMatrixSteps(request.inputs[1].shape, product.transpose_b()),
                rows = y[1], columns = y[2], n = Elements(y)](auto t, const Call& c) {
        using T = decltype(t);
        return LaunchForEach(BatchedProductKernel<T>, on, n, "batched_product", c.in<T>(0), a_steps,
                             c.in<T>(1), b_steps, rows, columns, inner, c.out<T>(0), n);
      });
}

}  // namespace gaccd
