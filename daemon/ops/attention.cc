#include "daemon/ops/attention.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

// Also of the lengths, the last of `inputs` if there are more than `without`.
Status CheckSizes(const AttentionOptions& options, std::span<const ValueSpec> inputs,
                  std::size_t without, const ValueSpec& qkv) {
  if (inputs.size() != without && inputs.size() != without + 1) {
    return {ErrorKind::kConfig, StrCat("expected ", without, " inputs, or ", without + 1,
                                       " with lengths, found ", inputs.size())};
  }
  GACCD_RETURN_IF_ERROR(CheckSequences(qkv, options.length, "qkv"));
  if (options.heads < 1 || qkv.shape[1] == 0 || qkv.shape[1] % (3 * options.heads) != 0) {
    return {ErrorKind::kConfig, StrCat("qkv: expected columns that 3 times ", options.heads,
                                       " heads divide, found ", ToString(qkv.shape))};
  }
  if (inputs.size() == without) return Status::Ok();
  return CheckShapeIs(inputs.back(), {qkv.shape[0] / options.length}, "the lengths", DType::kI32);
}

ValueSpec OutputOf(const ValueSpec& qkv) { return {{qkv.shape[0], qkv.shape[1] / 3}, qkv.dtype}; }

ValueSpec LogSumsOf(const AttentionOptions& options, const ValueSpec& qkv) {
  return {{qkv.shape[0] / options.length, options.heads, options.length}, DType::kF32};
}

}  // namespace

Result<std::vector<ValueSpec>> Attention::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.empty()) return Status(ErrorKind::kConfig, "expected 1 or 2 inputs, found 0");
  GACCD_RETURN_IF_ERROR(CheckSizes(options_, inputs, 1, inputs[0]));
  return std::vector<ValueSpec>{OutputOf(inputs[0]), LogSumsOf(options_, inputs[0])};
}

Status Attention::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1)) {
    return {ErrorKind::kConfig, "attention: the sums of the softmax have no gradient"};
  }
  std::vector<ValueId> inputs = {scope.OutputGradient(0), scope.input(0), scope.output(0),
                                 scope.output(1)};
  if (scope.inputs() == 2) inputs.push_back(scope.input(1));
  return scope.SetInputGradient(0, std::make_shared<AttentionGradient>(options_),
                                std::move(inputs));
}

Result<std::vector<ValueSpec>> AttentionGradient::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.size() < 4) {
    return Status(ErrorKind::kConfig, StrCat("expected 4 or 5 inputs, found ", inputs.size()));
  }
  const ValueSpec& qkv = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckSizes(options_, inputs, 4, qkv));
  const ValueSpec y = OutputOf(qkv);
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], y.shape, "the gradient", y.dtype));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], y.shape, "the output", y.dtype));
  const ValueSpec sums = LogSumsOf(options_, qkv);
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], sums.shape, "the sums of the softmax"));
  return std::vector<ValueSpec>{qkv};
}

}  // namespace gaccd
