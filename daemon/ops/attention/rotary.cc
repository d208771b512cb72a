#include "daemon/ops/attention/rotary.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs Rotary::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckHasColumns(x));
  if (x.shape[1] % 2 != 0) {
    return Status(ErrorKind::kConfig,
                  StrCat("rotary: expected an even width, found ", ToString(x.shape)));
  }
  const std::int64_t rows = options_.length * options_.group;
  if (options_.length < 1 || options_.group < 1 || x.shape[0] % rows != 0) {
    return Status(ErrorKind::kConfig,
                  StrCat("rotary: expected rows of ", options_.length, " positions, ",
                         options_.group, " each, found ", ToString(x.shape)));
  }
  for (const std::size_t i : {1, 2}) {
    GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[i], {options_.length, x.shape[1]}, "the angles"));
  }
  return std::vector<ValueSpec>{x};
}

Status Rotary::Gradient(GradientScope& scope) const {
  if (scope.NeedsGradient(1) || scope.NeedsGradient(2)) {
    return {ErrorKind::kConfig, "rotary: the angles are constants, and have no gradient"};
  }
  RotaryOptions options = options_;
  options.transposed = !options.transposed;
  return scope.SetInputGradient(0, std::make_shared<Rotary>(options),
                                {scope.OutputGradient(0), scope.input(1), scope.input(2)});
}

}  // namespace gaccd
