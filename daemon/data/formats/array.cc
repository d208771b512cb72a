#include "daemon/data/formats/array.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/data/bad_records.h"
#include "daemon/data/formats/columns.h"
#include "daemon/data/normalize.h"

namespace gaccd {
namespace {

// Labels are copied to i32 because they are small and read individually.
Result<Column> ReadLabels(Array targets, std::int64_t classes, BadRecords* bad) {
  if (classes > std::numeric_limits<std::int32_t>::max()) {
    return Status(ErrorKind::kData,
                  StrCat(targets.name, ": expected at most ",
                         std::numeric_limits<std::int32_t>::max(), " classes, found ", classes));
  }
  if (targets.shape.size() != 1) {
    const bool one_hot = targets.shape.size() == 2 && targets.shape[1] == classes && classes > 1;
    return Status(
        ErrorKind::kData,
        StrCat(targets.name, ": expected labels of shape [samples], found shape ",
               ToString(targets.shape),
               one_hot ? "; of one-hot rows save array.argmax(1)"
               : targets.shape.size() == 2 && targets.shape[1] == 1 ? "; save array.ravel()"
                                                                    : ""));
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

Result<Column> ReadWeights(Array weights, std::int64_t samples, BadRecords* bad, NodeShare* share) {
  if (weights.shape != Shape{samples}) {
    return Status(ErrorKind::kData, StrCat(weights.name, ": expected weights of shape [", samples,
                                           "], found shape ", ToString(weights.shape)));
  }
  Column column = Column::Rows("weights", DType::kF32, std::move(weights));
  GACCD_RETURN_IF_ERROR(CheckWeights(column, samples, bad, share));
  return column;
}

// The largest value of the type; 0 for floats, which are checked individually.
float MaxValue(StoredType type) {
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
                   ToString(features.shape),
                   features.shape.empty() ? "" : "; of one feature save array.reshape(-1, 1)")};
  }
  if (features.data.empty()) {
    return {ErrorKind::kData, StrCat(features.name,
                                     ": expected at least one sample with at least "
                                     "one feature, found shape ",
                                     ToString(features.shape))};
  }
  // Conversion to f32 may quadruple the size, which must still fit 63 bits.
  return ArrayBytes(features.name, features.shape, StoredType::kF32).status();
}

// most_dims: 2 for labels; other integers may have any form, as the masks of images.
Status CheckTokens(const Array& tokens, std::int64_t vocabulary, std::size_t most_dims) {
  if (vocabulary > std::numeric_limits<std::int32_t>::max()) {
    return {ErrorKind::kData,
            StrCat(tokens.name, ": expected a vocabulary of at most ",
                   std::numeric_limits<std::int32_t>::max(), ", found ", vocabulary)};
  }
  const bool fits = !tokens.shape.empty() && tokens.shape.size() <= most_dims;
  if (!IsFloat(tokens.type) && fits && !tokens.data.empty()) return {};
  return {ErrorKind::kData, StrCat(tokens.name, ": expected integers of shape [samples, ",
                                   most_dims == 2 ? "length" : "...", "], found ",
                                   Name(tokens.type), " ", ToString(tokens.shape))};
}

// A column of i32 for tokens and labels, of f32 for others.
Result<Column> ReadNamed(NamedArray named, std::int64_t classes, std::int64_t samples,
                         BadRecords* bad, NodeShare* share) {
  const bool labels = named.name == "labels" && classes > 0;
  const bool by_label = labels || (named.name == "weights" && classes > 0);
  if (named.array.shape.size() == 1 && !by_label) named.array.shape.push_back(1);
  const std::int64_t end = labels ? classes : named.vocabulary;
  if (end == 0) {
    if (!by_label) {
      GACCD_RETURN_IF_ERROR(CheckFeatures(named.array));
    } else if (!IsFloat(named.array.type)) {
      return Status(
          ErrorKind::kData,
          StrCat(named.array.name, ": expected weights of floats, found ", Name(named.array.type)));
    }
    Column column = Column::Rows(named.name, DType::kF32, std::move(named.array));
    GACCD_RETURN_IF_ERROR(by_label ? CheckWeights(column, samples, bad, share)
                                   : CheckFinite(column, samples, bad, share));
    return column;
  }
  constexpr std::size_t kAnyDims = std::numeric_limits<std::size_t>::max();
  const bool is_text = labels || named.name == "tokens";
  GACCD_RETURN_IF_ERROR(CheckTokens(named.array, end, is_text ? 2 : kAnyDims));
  const bool of_tokens = labels && named.array.shape.size() == 2;
  Column column = Column::Rows(named.name, DType::kI32, std::move(named.array));
  const auto ignored =
      of_tokens ? std::optional<std::int64_t>(kIgnoredLabel) : std::optional<std::int64_t>();
  GACCD_RETURN_IF_ERROR(CheckIntegers(
      column, samples, {.end = end, .or_else = ignored, .what = labels ? "labels" : "tokens"}, bad,
      share));
  return column;
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
                                                  const BadRecordRules& rules, NodeShare* share,
                                                  std::optional<Array> weights) {
  BadRecords bad(rules);
  GACCD_ASSIGN_OR_RETURN(const Affine affine, MakeAffine(normalize, MaxValue(features.type)));
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
  if (weights) {
    GACCD_ASSIGN_OR_RETURN(columns.emplace_back(),
                           ReadWeights(*std::move(weights), samples, &bad, share));
  }
  return std::move(bad).Skip(MakeColumnDataset(std::move(columns), samples, {.classes = classes}));
}

Result<std::unique_ptr<Dataset>> MakeArraysDataset(std::vector<NamedArray> arrays,
                                                   std::int64_t classes,
                                                   const BadRecordRules& rules, NodeShare* share) {
  BadRecords bad(rules);
  SampleSpec spec{.classes = classes};
  std::vector<Column> columns;
  if (arrays.empty() || arrays.size() > kMaxTensors) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected 1 to ", kMaxTensors, " arrays, found ", arrays.size()));
  }
  const bool labelled = std::ranges::find(arrays, "labels", &NamedArray::name) != arrays.end();
  if (labelled != (classes > 0)) {
    return Status(ErrorKind::kConfig,
                  labelled ? "arrays: the array 'labels' needs classes, found 0"
                           : StrCat("arrays: ", classes, " classes need an array called 'labels'"));
  }
  const std::string first = arrays[0].array.name;
  if (arrays[0].array.shape.empty()) {
    return Status(ErrorKind::kData, StrCat(first, ": expected shape [samples, ...], found []"));
  }
  const std::int64_t samples = arrays[0].array.shape[0];
  std::set<std::string> names;
  for (NamedArray& named : arrays) {
    if (!names.insert(named.name).second) {
      return Status(ErrorKind::kConfig, StrCat("two arrays are called '", named.name, "'"));
    }
    GACCD_RETURN_IF_ERROR(CheckRows(named.array, "rows", samples, first));
    if (named.vocabulary > 0) spec.LimitVocabulary(named.name, named.vocabulary);
    GACCD_ASSIGN_OR_RETURN(Column column,
                           ReadNamed(std::move(named), classes, samples, &bad, share));
    columns.push_back(std::move(column));
  }
  const auto find = [&](std::string_view name) {
    return std::ranges::find_if(columns, [&](const Column& c) { return c.spec.name == name; });
  };
  const auto labels = find("labels");
  const auto weights = find("weights");
  if (classes > 0 && weights != columns.end() && weights->spec.shape != labels->spec.shape) {
    return Status(
        ErrorKind::kData,
        StrCat(weights->array.name, ": expected a weight for each label, ",
               ToString(labels->spec.shape), " a sample, found ", ToString(weights->spec.shape)));
  }
  return std::move(bad).Skip(MakeColumnDataset(std::move(columns), samples, std::move(spec)));
}

}  // namespace gaccd
