#include "daemon/ops/attention/attention.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckHeads(std::int64_t heads, std::int64_t parts, const ValueSpec& x) {
  if (heads >= 1 && x.shape[1] > 0 && x.shape[1] % (parts * heads) == 0) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("expected columns that ", parts, " times ", heads,
                                     " heads divide, found ", ToString(x.shape))};
}

// Checks the inputs of Attention; returns the spec of y.
Result<ValueSpec> CheckInputs(const AttentionOptions& options, std::span<const ValueSpec> inputs) {
  if (inputs.empty() || inputs.size() > 4) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected qkv or q, k and v, and possibly lengths, found ", inputs.size(),
                         " inputs"));
  }
  const ValueSpec& x = inputs[0];
  const bool packed = IsPackedAttention(inputs.size());
  const std::int64_t parts = packed ? 3 : 1;
  GACCD_RETURN_IF_ERROR(CheckSequences(x, options.length, packed ? "qkv" : "q"));
  GACCD_RETURN_IF_ERROR(CheckHeads(options.heads, parts, x));
  if (!packed) {
    GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], x.shape, "k", x.dtype));
    GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], x.shape, "v", x.dtype));
  }
  if (HasAttentionLengths(inputs.size())) {
    GACCD_RETURN_IF_ERROR(
        CheckShapeIs(inputs.back(), {x.shape[0] / options.length}, "the lengths", DType::kI32));
  }
  return ValueSpec{{x.shape[0], x.shape[1] / parts}, x.dtype};
}

ValueSpec LogSumsSpec(const AttentionOptions& options, const ValueSpec& y) {
  return {{y.shape[0] / options.length, options.heads, options.length}, DType::kF32};
}

}  // namespace

OutputSpecs Attention::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_ASSIGN_OR_RETURN(const ValueSpec y, CheckInputs(options_, inputs));
  return std::vector<ValueSpec>{y, LogSumsSpec(options_, y)};
}

// q k^T and P v.
double Attention::ProductFlops(std::span<const ValueSpec> inputs) const {
  const std::int64_t parts = IsPackedAttention(inputs.size()) ? 3 : 1;
  const std::int64_t values = Elements(inputs[0].shape) / parts;
  return 2 * 2.0 * static_cast<double>(values * options_.length);
}

Status Attention::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1)) {
    return {ErrorKind::kConfig, "attention: the sums of the softmax have no gradient"};
  }
  std::vector<ValueId> inputs = {scope.OutputGradient(0), scope.output(0), scope.output(1)};
  for (std::size_t i = 0; i < scope.inputs(); ++i) inputs.push_back(scope.input(i));
  constexpr std::size_t kParts[] = {0, 1, 2};
  const std::size_t parts = IsPackedAttention(scope.inputs()) ? 1 : 3;
  return scope.SetInputGradients(std::span(kParts).first(parts),
                                 std::make_shared<AttentionGradient>(options_), std::move(inputs));
}

OutputSpecs AttentionGradient::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.size() < 4) {
    return Status(ErrorKind::kConfig, StrCat("expected at least 4 inputs, found ", inputs.size()));
  }
  const std::span<const ValueSpec> forward = inputs.subspan(3);
  GACCD_ASSIGN_OR_RETURN(const ValueSpec y, CheckInputs(options_, forward));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], y.shape, "the gradient", y.dtype));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], y.shape, "the output", y.dtype));
  const ValueSpec sums = LogSumsSpec(options_, y);
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], sums.shape, "the sums of the softmax"));
  const ValueSpec gradient{inputs[3].shape, to_bf16_ ? DType::kBF16 : inputs[3].dtype};
  return std::vector<ValueSpec>(IsPackedAttention(forward.size()) ? 1 : 3, gradient);
}

// The products for dq, dk, dv and dP; the recomputation of S does not count.
double AttentionGradient::ProductFlops(std::span<const ValueSpec> inputs) const {
  return 4 * 2.0 * static_cast<double>(Elements(inputs[0].shape) * options_.length);
}

Status CheckAttentionOnGpu(const Function& function, std::span<const ValueSpec> inputs) {
  const auto& options = static_cast<const Attention&>(function).options();
  if (options.round_to_bf16) {
    return {ErrorKind::kConfig,
            "attention on the GPU: expected inputs of bf16, found f32 to round"};
  }
  GACCD_ASSIGN_OR_RETURN(const ValueSpec y, CheckInputs(options, inputs));
  const std::int64_t width = y.shape[1] / options.heads;
  if (width <= kMaxAttentionWidth) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("attention on the GPU: expected heads of at most ",
                                     kMaxAttentionWidth, " values, found ", width)};
}

}  // namespace gaccd
