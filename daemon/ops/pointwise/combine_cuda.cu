// A thread for every value that is written; a sum is taken by one thread, in f64.
#include <utility>

#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/ops/pointwise/combine_nest.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// A value of either type.
struct Operand {
  const void* values;
  DType dtype;
};
template <typename T>
GACCD_HOST_DEVICE float At(const Operand& operand, std::int64_t i) {
  return operand.dtype == DType::kF32 ? static_cast<const float*>(operand.values)[i]
                                      : ToFloat(static_cast<const T*>(operand.values)[i]);
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    CombineKernel(const void* a_values, DType a_type, const void* b_values, DType b_type,
                  StridedNest nest, bool multiply, T* y) {
  const Operand a{a_values, a_type};
  const Operand b{b_values, b_type};
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < nest.elements; i += threads) {
    std::int64_t at[StridedNest::kOperands] = {};
    nest.Place(i, at);
    const float left = At<T>(a, at[0]);
    const float right = At<T>(b, at[1]);
    y[i] = FromFloat<T>(multiply ? left * right : left + right);
  }
}

// T: the 16-bit type of x, factor and y, where they are not f32.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    ReduceSumKernel(const void* x_values, DType x_type, const void* factors, DType factor_type,
                    SumNests nests, bool add, DType dtype, void* y) {
  const Operand x{x_values, x_type};
  const Operand factor{factors, factor_type};
  const std::int64_t threads = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
  std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (; i < nests.kept.elements; i += threads) {
    std::int64_t first[StridedNest::kOperands] = {};
    nests.kept.Place(i, first);
    double sum = 0;
    for (std::int64_t k = 0; k < nests.summed.elements; ++k) {
      std::int64_t at[StridedNest::kOperands] = {first[0], first[1], 0};
      nests.summed.Place(k, at);
      const float times = factor.values == nullptr ? 1.0F : At<T>(factor, at[1]);
      sum += static_cast<double>(At<T>(x, at[0])) * static_cast<double>(times);
    }
    if (dtype != DType::kF32) {
      static_cast<T*>(y)[first[2]] = FromFloat<T>(static_cast<float>(sum));
    } else {
      float* to = static_cast<float*>(y) + first[2];
      *to = static_cast<float>(add ? static_cast<double>(*to) + sum : sum);
    }
  }
}

// The one that is not f32, if there is one.
DType OtherType(const CudaRequest& request) {
  for (const ValueSpec& input : request.inputs) {
    if (input.dtype != DType::kF32) return input.dtype;
  }
  return request.outputs[0].dtype;
}

}  // namespace

KernelResult MakeCombineCuda(const CudaRequest& request) {
  const ValueSpec& a = request.inputs[0];
  const ValueSpec& b = request.inputs[1];
  const StridedNest nest = CombineNest(a.shape, b.shape, request.outputs[0].shape);
  const bool multiply =
      static_cast<const Combine&>(request.function).kind() == CombineKind::kMultiply;
  return MakeCall(request, [=, on = request.on, types = std::pair(a.dtype, b.dtype),
                            dtype = request.outputs[0].dtype](const Call& c) {
    return WithFloat(dtype, [&](auto t) {
      using T = decltype(t);
      return Launch(CombineKernel<T>, {on.Blocks(nest.elements, kThreads), kThreads}, on.stream,
                    "combine", c.in<void>(0), types.first, c.in<void>(1), types.second, nest,
                    multiply, c.out<T>(0));
    });
  });
}

KernelResult MakeReduceSumCuda(const CudaRequest& request) {
  const ValueSpec& x = request.inputs[0];
  const ValueSpec factor = request.inputs.size() == 2
                               ? request.inputs[1]
                               : ValueSpec{Shape(x.shape.size(), 1), DType::kF32};
  const SumNests nests = NestsOfSum(x.shape, factor.shape, request.outputs[0].shape);
  return MakeCall(
      request, [=, on = request.on, types = std::pair(x.dtype, factor.dtype),
                other = OtherType(request), dtype = request.outputs[0].dtype](const Call& c) {
        return WithFloat(other, [&](auto t) {
          using T = decltype(t);
          return Launch(ReduceSumKernel<T>, {on.Blocks(nests.kept.elements, kThreads), kThreads},
                        on.stream, "reduce_sum", c.in<void>(0), types.first, c.optional_in<void>(1),
                        types.second, nests, bool{c.add[0]}, dtype, c.outputs[0]);
        });
      });
}

}  // namespace gaccd
