#include "daemon/ops/pointwise/dropout.h"

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

OutputSpecs Dropout::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  const ValueSpec& x = inputs[0];
  const ValueSpec& ids = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckFloat(x, "the input"));
  const bool is_list = ids.dtype == DType::kI64 && ids.shape.size() == 1;
  const auto fits = [](std::int64_t rows, std::int64_t samples) {
    return samples > 0 ? rows % samples == 0 : rows == 0;
  };
  if (!is_list || x.shape.empty() || !fits(x.shape[0], ids.shape[0])) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected sample ids i64 [samples] and an input of so many rows, or a "
                         "multiple, found ",
                         Name(ids.dtype), " ", ToString(ids.shape), " and ", ToString(x.shape)));
  }
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {1}, "the number of the update", DType::kI64));
  if (!(options_.probability >= 0 && options_.probability < 1)) {
    return Status(ErrorKind::kConfig, StrCat("dropout: expected a probability in [0, 1), found ",
                                             options_.probability));
  }
  return std::vector<ValueSpec>{x};
}

Status Dropout::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<Dropout>(options_),
                                {scope.OutputGradient(0), scope.input(1), scope.input(2)});
}

}  // namespace gaccd
