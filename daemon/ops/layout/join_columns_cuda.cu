// One thread per value of y, or of dy.
#include <memory>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/layout/join_columns.h"

namespace gaccd {
namespace {

// a, b: `a_columns` and `b_columns` wide. kJoin: joined = (a, b); else a and b are parts of joined.
template <bool kJoin, typename Part, typename Joined>
__global__ void __launch_bounds__(kThreads)
    ColumnsKernel(Part* a, std::int64_t a_columns, Part* b, std::int64_t b_columns, Joined* joined,
                  std::int64_t rows) {
  const std::int64_t columns = a_columns + b_columns;
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < rows * columns; i += threads) {
    const std::int64_t row = i / columns;
    const std::int64_t column = i % columns;
    Part* part = column < a_columns ? a + row * a_columns + column
                                    : b + row * b_columns + column - a_columns;
    if constexpr (kJoin) {
      joined[i] = *part;
    } else {
      *part = joined[i];
    }
  }
}

LaunchShape ShapeFor(const CudaRequest& request, std::int64_t elements) {
  return {request.on.Blocks(elements, kThreads), kThreads};
}

}  // namespace

KernelResult MakeJoinColumnsCuda(const CudaRequest& request) {
  const std::int64_t rows = request.outputs[0].shape[0];
  const std::int64_t a = request.inputs[0].shape[1];
  const std::int64_t b = request.inputs[1].shape[1];
  return MakeCall(
      request, [=, stream = request.on.stream,
                shape = ShapeFor(request, rows * (a + b))](const CallKernel::Call& call) {
        return Launch(ColumnsKernel<true, const float, float>, shape, stream, "join columns",
                      call.in<float>(0), a, call.in<float>(1), b, call.out<float>(0), rows);
      });
}

KernelResult MakeJoinColumnsGradientCuda(const CudaRequest& request) {
  const std::int64_t rows = request.inputs[0].shape[0];
  const std::int64_t a = request.outputs[0].shape[1];
  const std::int64_t b = request.outputs[1].shape[1];
  return MakeCall(request,
                  [=, stream = request.on.stream,
                   shape = ShapeFor(request, rows * (a + b))](const CallKernel::Call& call) {
                    return Launch(ColumnsKernel<false, float, const float>, shape, stream,
                                  "gradient of joined columns", call.out<float>(0), a,
                                  call.out<float>(1), b, call.in<float>(0), rows);
                  });
}

}  // namespace gaccd
