#include "daemon/ops/pointwise/number_functions.h"

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs NumberFunction::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the input"));
  return std::vector<ValueSpec>{{inputs[0].shape, inputs[0].dtype}};
}

Status NumberFunction::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<NumberFunctionGradient>(kind_, numbers()),
                                {scope.OutputGradient(0), scope.input(0)});
}

OutputSpecs NumberFunctionGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckFloat(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the value", inputs[0].dtype));
  return std::vector<ValueSpec>{{inputs[0].shape, inputs[0].dtype}};
}

std::string_view IdFunction::name() const {
  switch (kind_) {
    case IdFunctionKind::kIdsToNumbers:
      return "ids_to_numbers";
    case IdFunctionKind::kNumbersToIds:
      return "numbers_to_ids";
    case IdFunctionKind::kSkipId:
      return "skip_id";
    case IdFunctionKind::kKnownPositions:
      return "known_positions";
  }
  return "";
}

OutputSpecs IdFunction::Infer(std::span<const ValueSpec> inputs) const {
  const bool has_lengths = kind_ == IdFunctionKind::kKnownPositions && inputs.size() == 2;
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, has_lengths ? 2 : 1));
  if (kind_ == IdFunctionKind::kKnownPositions) {
    const std::int64_t texts = inputs[0].shape.empty() ? 0 : inputs[0].shape[0];
    GACCD_RETURN_IF_ERROR(CheckSequences({inputs[0].shape, DType::kF32}, 1, "the tokens"));
    if (has_lengths) {
      GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], {texts}, "the lengths", DType::kI32));
    }
  }
  const DType from = kind_ == IdFunctionKind::kNumbersToIds ? DType::kF32 : DType::kI32;
  const DType to = kind_ == IdFunctionKind::kIdsToNumbers ? DType::kF32 : DType::kI32;
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], inputs[0].shape, "the input", from));
  return std::vector<ValueSpec>{{inputs[0].shape, to}};
}

namespace {

using Call = CallKernel::Call;

template <typename Formula>
GACCD_SIMD_CLONES void NumberLoop(Formula formula, const float* x, float* y,
                                  std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) y[i] = formula.Apply(x[i]);
}

template <typename Formula>
GACCD_SIMD_CLONES void NumberGradientLoop(Formula formula, const float* dy, const float* x,
                                          float* dx, std::int64_t elements) {
  for (std::int64_t i = 0; i < elements; ++i) dx[i] = formula.Gradient(dy[i], x[i]);
}

template <typename From, typename To, typename Formula>
KernelResult MakeIdLoop(const KernelRequest& request, Formula formula) {
  return MakeCall(request, [formula, elements = Elements(request.inputs[0].shape)](const Call& c) {
    for (std::int64_t i = 0; i < elements; ++i) c.out<To>(0)[i] = formula.Apply(c.in<From>(0)[i]);
    return Status::Ok();
  });
}

}  // namespace

KernelResult MakeNumberFunctionCpu(const KernelRequest& request) {
  const auto& function = static_cast<const NumberFunction&>(request.function);
  const std::int64_t elements = Elements(request.inputs[0].shape);
  return WithNumberFormula(function.kind(), function.numbers(), [&](auto formula) {
    return MakeCall(request, [formula, elements](const Call& c) {
      NumberLoop(formula, c.in<float>(0), c.out<float>(0), elements);
      return Status::Ok();
    });
  });
}

KernelResult MakeNumberFunctionGradientCpu(const KernelRequest& request) {
  const auto& function = static_cast<const NumberFunctionGradient&>(request.function);
  const std::int64_t elements = Elements(request.inputs[0].shape);
  return WithNumberFormula(function.kind(), function.numbers(), [&](auto formula) {
    return MakeCall(request, [formula, elements](const Call& c) {
      NumberGradientLoop(formula, c.in<float>(0), c.in<float>(1), c.out<float>(0), elements);
      return Status::Ok();
    });
  });
}

KernelResult MakeIdsToNumbersCpu(const KernelRequest& request) {
  return MakeIdLoop<std::int32_t, float>(request, NumberOfId{});
}

KernelResult MakeNumbersToIdsCpu(const KernelRequest& request) {
  return MakeIdLoop<float, std::int32_t>(request, IdOfNumber{});
}

KernelResult MakeSkipIdCpu(const KernelRequest& request) {
  const std::int32_t skipped = static_cast<const IdFunction&>(request.function).id();
  return MakeIdLoop<std::int32_t, std::int32_t>(request, SkippedId{skipped});
}

KernelResult MakeKnownPositionsCpu(const KernelRequest& request) {
  const Shape& shape = request.inputs[0].shape;
  return MakeCall(request, [texts = shape[0], length = shape[1]](const Call& c) {
    const auto* lengths = c.optional_in<std::int32_t>(1);
    auto* y = c.out<std::int32_t>(0);
    for (std::int64_t b = 0; b < texts; ++b) {
      const std::int64_t known = lengths == nullptr ? length : lengths[b];
      for (std::int64_t t = 0; t < length; ++t) y[b * length + t] = t < known ? 1 : 0;
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
