// One thread per value.
#include "daemon/device/cuda/launch.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/pointwise/number_functions.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

// dy null: y = f(x); else dx = f'(x) dy.
template <typename Formula, typename T>
__global__ void __launch_bounds__(kThreads)
    NumberKernel(const T* dy, const T* x, Formula formula, T* to, std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    const float value = ToFloat(x[i]);
    to[i] = FromFloat<T>(dy == nullptr ? formula.Apply(value)
                                       : formula.Gradient(ToFloat(dy[i]), value));
  }
}

template <typename Formula, typename From, typename To>
__global__ void __launch_bounds__(kThreads)
    IdKernel(const From* x, Formula formula, To* y, std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) y[i] = formula.Apply(x[i]);
}

__global__ void __launch_bounds__(kThreads)
    KnownPositionsKernel(const std::int32_t* lengths, std::int64_t length, std::int32_t* y,
                         std::int64_t elements) {
  for (std::int64_t i = GridIndex(); i < elements; i += GridStride()) {
    y[i] = lengths == nullptr || i % length < lengths[i / length] ? 1 : 0;
  }
}

template <typename From, typename To, typename Formula>
KernelResult MakeIdCall(const CudaRequest& request, Formula formula, const char* what) {
  return MakeCall(request, [=, on = request.on, n = request.elements()](const Call& c) {
    return LaunchForEach(IdKernel<Formula, From, To>, on, n, what, c.in<From>(0), formula,
                         c.out<To>(0), n);
  });
}

}  // namespace

KernelResult MakeNumberFunctionCuda(const CudaRequest& request) {
  const auto& function = static_cast<const NumberFunction&>(request.function);
  return MakeTypedCall(request, [=, kind = function.kind(), numbers = function.numbers(),
                                 on = request.on, n = request.elements()](auto t, const Call& c) {
    using T = decltype(t);
    return WithNumberFormula(kind, numbers, [&](auto formula) {
      return LaunchForEach(NumberKernel<decltype(formula), T>, on, n, "number_function",
                           static_cast<const T*>(nullptr), c.in<T>(0), formula, c.out<T>(0), n);
    });
  });
}

KernelResult MakeNumberFunctionGradientCuda(const CudaRequest& request) {
  const auto& function = static_cast<const NumberFunctionGradient&>(request.function);
  return MakeTypedCall(request, [=, kind = function.kind(), numbers = function.numbers(),
                                 on = request.on, n = request.elements()](auto t, const Call& c) {
    using T = decltype(t);
    return WithNumberFormula(kind, numbers, [&](auto formula) {
      return LaunchForEach(NumberKernel<decltype(formula), T>, on, n, "number_function_gradient",
                           c.in<T>(0), c.in<T>(1), formula, c.out<T>(0), n);
    });
  });
}

KernelResult MakeIdsToNumbersCuda(const CudaRequest& request) {
  return MakeIdCall<std::int32_t, float>(request, NumberOfId{}, "ids_to_numbers");
}

KernelResult MakeNumbersToIdsCuda(const CudaRequest& request) {
  return MakeIdCall<float, std::int32_t>(request, IdOfNumber{}, "numbers_to_ids");
}

KernelResult MakeSkipIdCuda(const CudaRequest& request) {
  const std::int32_t skipped = static_cast<const IdFunction&>(request.function).id();
  return MakeIdCall<std::int32_t, std::int32_t>(request, SkippedId{skipped}, "skip_id");
}

KernelResult MakeKnownPositionsCuda(const CudaRequest& request) {
  return MakeCall(request, [on = request.on, length = request.inputs[0].shape[1],
                            n = request.elements()](const Call& c) {
    const auto* lengths = c.optional_in<std::int32_t>(1);
    return LaunchForEach(KnownPositionsKernel, on, n, "known_positions", lengths, length,
                         c.out<std::int32_t>(0), n);
  });
}

}  // namespace gaccd
