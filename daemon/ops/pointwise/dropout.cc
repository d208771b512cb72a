#include "daemon/ops/pointwise/dropout.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {

Result<DropoutPlaces> DropoutPlaces::Make(const std::vector<CutDimension>& cut,
                                          std::int64_t elements) {
  if (cut.empty()) return DropoutPlaces{.width = elements};
  std::vector<CutDimension> joined;  // innermost first; `whole` is a stride
  std::int64_t stride = 1;
  std::int64_t count = 1;
  for (auto dimension = cut.rbegin(); dimension != cut.rend(); ++dimension) {
    const bool fits = dimension->size > 0 && dimension->size <= dimension->whole;
    if (!fits) break;
    if (!joined.empty() && joined.back().size * joined.back().whole == stride) {
      joined.back().size *= dimension->size;
    } else {
      joined.push_back({.size = dimension->size, .whole = stride});
    }
    stride *= dimension->whole;
    count *= dimension->size;
  }
  if (count != elements || joined.empty() || joined.size() > kMost + 1) {
    return Status(ErrorKind::kConfig, StrCat("dropout of a part of a sample: expected ", elements,
                                             " elements in at most ", kMost + 1, " parts, found ",
                                             count, " in ", joined.size()));
  }
  DropoutPlaces places{.width = joined[0].size};
  for (std::size_t d = 1; d < joined.size(); ++d) {
    places.counts[kMost - d] = joined[d].size;
    places.strides[kMost - d] = joined[d].whole;
  }
  return places;
}

DropoutMask Dropout::MakeMask() const {
  if (options_.uniform) return DropoutMask::Uniform(options_.probability);
  return DropoutMask::For(static_cast<double>(options_.probability));
}

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
  const float p = options_.probability;
  if (!(p >= 0 && (options_.uniform ? p <= 1 : p < 1))) {
    return Status(ErrorKind::kConfig, StrCat("dropout: expected a probability in [0, 1",
                                             options_.uniform ? "]" : ")", ", found ", p));
  }
  const std::int64_t samples = std::max<std::int64_t>(ids.shape[0], 1);
  if (!options_.cut.empty() && Elements(x.shape) > 0) {
    GACCD_RETURN_IF_ERROR(DropoutPlaces::Make(options_.cut, Elements(x.shape) / samples).status());
  }
  return std::vector<ValueSpec>{x};
}

Status Dropout::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0, std::make_shared<Dropout>(options_),
                                {scope.OutputGradient(0), scope.input(1), scope.input(2)});
}

}  // namespace gaccd
