#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/pointwise/gated.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

template <typename Formula, typename T>
GACCD_SIMD_CLONES void Forward(const float* a, const float* b, T* y, std::int64_t elements) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < elements; ++i) y[i] = FromFloat<T>(Formula::Apply(a[i]) * b[i]);
}

template <typename Formula, typename Slope>
GACCD_SIMD_CLONES void Backward(const float* dy, const float* a, const float* b, float* da,
                                float* db, std::int64_t elements) {
  GACCD_INDEPENDENT_ITERATIONS
  for (std::int64_t i = 0; i < elements; ++i) {
    const GatedGradients at = GatedGradientsAt<Formula, Slope>(dy[i], a[i], b[i]);
    da[i] = at.da;
    db[i] = at.db;
  }
}

}  // namespace

KernelResult MakeGatedCpu(const KernelRequest& request) {
  const std::int64_t elements = Elements(request.outputs[0].shape);
  const bool bf16 = request.outputs[0].dtype == DType::kBF16;
  const ActivationKind kind = static_cast<const Gated&>(request.function).kind();
  return WithActivation<ExactMath>(kind, [&](auto formula, auto) {
    using Formula = decltype(formula);
    return MakeCall(request, [elements, bf16](const Call& c) {
      const auto run = [&](auto* y) {
        Forward<Formula>(c.in<float>(0), c.in<float>(1), y, elements);
      };
      bf16 ? run(c.out<Bf16>(0)) : run(c.out<float>(0));
      return Status::Ok();
    });
  });
}

KernelResult MakeGatedGradientCpu(const KernelRequest& request) {
  const std::int64_t elements = Elements(request.outputs[0].shape);
  const ActivationKind kind = static_cast<const GatedGradient&>(request.function).kind();
  return WithActivation<ExactMath>(kind, [&](auto formula, auto slope) {
    using Formula = decltype(formula);
    using Slope = decltype(slope);
    return MakeCall(request, [elements](const Call& c) {
      Backward<Formula, Slope>(c.in<float>(0), c.in<float>(1), c.in<float>(2), c.out<float>(0),
                               c.out<float>(1), elements);
      return Status::Ok();
    });
  });
}

}  // namespace gaccd
