#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {

GACCD_SIMD_CLONES
void ReluInPlace(float* values, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) values[i] = ReluFormula::Apply(values[i]);
}

GACCD_SIMD_CLONES
void ReluInPlace(Bf16* values, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) {
    values[i] = ToBf16(ReluFormula::Apply(ToFloat(values[i])));
  }
}

namespace {

using Call = CallKernel::Call;

// y[i] = f(x[i]), rounded to T; y may alias x.
template <typename Formula, typename T>
GACCD_SIMD_CLONES void UnaryLoop(const float* x, T* y, std::int64_t elements) {
  ForEachElement(
      elements, [=](std::int64_t i) { y[i] = FromFloat<T>(Formula::Apply(x[i])); }, y);
}

// c[i] = f(a[i], b[i]); c may alias a or b.
template <typename Formula, typename B, typename T>
GACCD_SIMD_CLONES void BinaryLoop(const float* a, const B* b, T* c, std::int64_t elements) {
  ForEachElement(
      elements, [=](std::int64_t i) { c[i] = FromFloat<T>(Formula::Apply(a[i], ToFloat(b[i]))); },
      c);
}

// c[i] = f(a1[i] + a2[i], b[i]); c may alias any of them.
template <typename Formula, typename B, typename T>
GACCD_SIMD_CLONES void SumLoop(const float* a1, const float* a2, const B* b, T* c,
                               std::int64_t elements) {
  ForEachElement(
      elements,
      [=](std::int64_t i) { c[i] = FromFloat<T>(Formula::Apply(a1[i] + a2[i], ToFloat(b[i]))); },
      c);
}

template <typename T, typename Formula>
void RunLoop(const Call& c, std::int64_t elements) {
  if constexpr (requires { Formula::Apply(0.0F, 0.0F); }) {
    BinaryLoop<Formula>(c.in<float>(0), c.in<float>(1), c.out<T>(0), elements);
  } else {
    UnaryLoop<Formula>(c.in<float>(0), c.out<T>(0), elements);
  }
}

// From f32 to f32 or bf16.
template <typename Formula>
KernelResult MakeLoop(const KernelRequest& request) {
  const auto run =
      request.outputs[0].dtype == DType::kBF16 ? &RunLoop<Bf16, Formula> : &RunLoop<float, Formula>;
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return MakeCall(request, [=](const Call& c) {
    run(c, elements);
    return Status::Ok();
  });
}

}  // namespace

KernelResult MakeAccumulateCpu(const KernelRequest& request) {
  return MakeCall(request, [elements = Elements(request.outputs[0].shape)](const Call& c) {
    const auto* a = c.in<float>(0);
    auto* gradient = c.out<float>(0);
    if (c.add[0]) {
      BinaryLoop<AddFormula>(a, gradient, gradient, elements);
    } else {
      std::copy_n(a, elements, gradient);
    }
    return Status::Ok();
  });
}

KernelResult MakeAddCpu(const KernelRequest& request) { return MakeLoop<AddFormula>(request); }
KernelResult MakeCastCpu(const KernelRequest& request) {
  return MakeLoop<IdentityFormula>(request);
}
KernelResult MakeReluCpu(const KernelRequest& request) { return MakeLoop<ReluFormula>(request); }
KernelResult MakeReluGradientCpu(const KernelRequest& request) {
  if (request.inputs[0].dtype != DType::kF32) {
    return Status(ErrorKind::kConfig,
                  StrCat("'relu_gradient' on the CPU: expected a gradient of f32, found ",
                         Name(request.inputs[0].dtype)));
  }
  const bool of_bf16 = request.inputs[1].dtype == DType::kBF16;
  const bool to_bf16 = request.outputs[0].dtype == DType::kBF16;
  const std::int64_t elements = Elements(request.outputs[0].shape);
  return MakeCall(request, [=](const Call& c) {
    const auto run = [&](const auto* y, auto* dx) {
      const auto* const more = c.optional_in<float>(2);
      if (more == nullptr) {
        BinaryLoop<ReluGradientFormula>(c.in<float>(0), y, dx, elements);
      } else {
        SumLoop<ReluGradientFormula>(c.in<float>(0), more, y, dx, elements);
      }
    };
    const auto from = [&](const auto* y) {
      to_bf16 ? run(y, c.out<Bf16>(0)) : run(y, c.out<float>(0));
    };
    of_bf16 ? from(c.in<Bf16>(1)) : from(c.in<float>(1));
    return Status::Ok();
  });
}
KernelResult MakeActivationCpu(const KernelRequest& request) {
  const ActivationKind kind = static_cast<const Activation&>(request.function).kind();
  return WithActivation<ExactMath>(
      kind, [&](auto formula, auto) { return MakeLoop<decltype(formula)>(request); });
}
KernelResult MakeActivationGradientCpu(const KernelRequest& request) {
  const ActivationKind kind = static_cast<const ActivationGradient&>(request.function).kind();
  return WithActivation<ExactMath>(
      kind, [&](auto, auto gradient) { return MakeLoop<decltype(gradient)>(request); });
}

KernelResult MakeZerosCpu(const KernelRequest& request) {
  std::vector<std::size_t> bytes;
  for (const ValueSpec& spec : request.outputs) {
    bytes.push_back(static_cast<std::size_t>(spec.bytes()));
  }
  return MakeCall(request, [bytes = std::move(bytes)](const CallKernel::Call& c) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (!c.add[i] && bytes[i] > 0) std::memset(c.outputs[i], 0, bytes[i]);
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
