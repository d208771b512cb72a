#include "daemon/data/array.h"

#include <limits>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/data/bad_records.h"
#include "daemon/data/columns.h"
#include "daemon/data/normalize.h"

namespace gaccd {
namespace {

// Labels are copied, as i32: they are few, and each is read by itself.
Result<Column> ReadLabels(Array targets, std::int64_t classes, BadRecords* bad) {
  if (classes > std::numeric_limits<std::int32_t>::max()) {
    return Status(ErrorKind::kData,
                  StrCat(targets.name, ": expected at most ",
                         std::numeric_limits<std::int32_t>::max(), " classes, found ", classes));
  }
  if (targets.shape.size() != 1) {
    return Status(ErrorKind::kData,
                  StrCat(targets.name, ": expected labels of shape [samples], found shape ",
                         ToString(targets.shape)));
  }
  if (IsFloat(targets.type)) {
    return Status(ErrorKind::kData, StrCat(targets.name,
                                           ": expected integer labels, because the job "
                                           "gives ",
                                           classes, " classes, found ", Name(targets.type),
                                           "; save array.astype('int64')"));
  }
  Column labels = Column::Rows("labels", DType::kI32, std::move(targets));
  const std::int64_t samples = labels.array.shape[0];
  GACCD_RETURN_IF_ERROR(CheckIntegers(labels, samples, {.end = classes}, bad, nullptr));
  return CopyIntegers(std::move(labels), samples);
}

Result<Column> ReadVectors(Array targets) {
  if (!IsFloat(targets.type)) {
    return Status(ErrorKind::kData,
                  StrCat(targets.name,
                         ": expected f32 targets, because the job gives no number of "
                         "classes, found ",
                         Name(targets.type), "; give classes, or save array.astype('float32')"));
  }
  if (targets.shape.size() > 2 || (targets.shape.size() == 2 && targets.shape[1] == 0)) {
    return Status(ErrorKind::kData,
                  StrCat(targets.name, ": expected targets of shape [samples, width], found shape ",
                         ToString(targets.shape)));
  }
  if (targets.shape.size() == 1) targets.shape.push_back(1);
  return Column::Rows("targets", DType::kF32, std::move(targets));
}

// The largest stored value; 0 for floats, which are looked at one by one.
float LargestOf(StoredType type) {
  return VisitStored(type, [](auto element) {
    using T = decltype(element);
    return std::numeric_limits<T>::is_integer ? static_cast<float>(std::numeric_limits<T>::max())
                                              : 0.0F;
  });
}

Status CheckFeatures(const Array& features) {
  if (!IsFloat(features.type) && SizeOf(features.type) > 2) {  // f32 would round them
    return {ErrorKind::kData,
            StrCat(features.name, ": expected features of floats or of integers up to 16 bits, ",
                   "found ", Name(features.type), "; save array.astype('float32')")};
  }
  if (features.shape.size() < 2) {
    return {ErrorKind::kData,
            StrCat(features.name, ": expected features of shape [samples, ...], found shape ",
                   ToString(features.shape))};
  }
  if (features.data.empty()) {
    return {ErrorKind::kData, StrCat(features.name,
                                     ": expected at least one sample with at least "
                                     "one feature, found shape ",
                                     ToString(features.shape))};
  }
  // In f32 the samples may take four times their bytes; sizes in memory must stay countable.
  return ArrayBytes(features.name, features.shape, StoredType::kF32).status();
}

}  // namespace

Result<std::int64_t> ArrayBytes(const std::string& name, const Shape& shape, StoredType type) {
  auto product = static_cast<std::int64_t>(SizeOf(type));
  for (const std::int64_t dim : shape) {
    if (dim < 0 || __builtin_mul_overflow(product, dim, &product)) {
      return Status(ErrorKind::kData, StrCat(name, ": the size of shape ", ToString(shape), ", ",
                                             Name(type), ", does not fit 63 bits"));
    }
  }
  return product;
}

Result<std::unique_ptr<Dataset>> MakeArrayDataset(Array features, Array targets,
                                                  std::int64_t classes,
                                                  const NormalizeSpec& normalize,
                                                  const BadRecordRules& rules, NodeShare* share) {
  BadRecords bad(rules);
  GACCD_ASSIGN_OR_RETURN(const Affine affine, MakeAffine(normalize, LargestOf(features.type)));
  GACCD_RETURN_IF_ERROR(CheckFeatures(features));
  const std::int64_t samples = features.shape[0];
  GACCD_RETURN_IF_ERROR(CheckRows(targets, "targets", samples, features.name));
  Column x = Column::Rows("features", DType::kF32, std::move(features), affine);
  Result<Column> y =
      classes > 0 ? ReadLabels(std::move(targets), classes, &bad) : ReadVectors(std::move(targets));
  GACCD_RETURN_IF_ERROR(y.status());
  GACCD_RETURN_IF_ERROR(CheckFinite(*y, samples, &bad, share));
  GACCD_RETURN_IF_ERROR(CheckFinite(x, samples, &bad, share));  // last: it reads the whole file
  std::vector<Column> columns;
  columns.push_back(std::move(x));
  columns.push_back(*std::move(y));
  return std::move(bad).Skip(MakeColumnDataset(std::move(columns), samples, {.classes = classes}));
}

}  // namespace gaccd
