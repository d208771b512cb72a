#include "daemon/data/formats/tokens.h"

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/data/bad_records.h"
#include "daemon/data/formats/columns.h"

namespace gaccd {
namespace {

constexpr std::int64_t kMaxIds = std::numeric_limits<std::int32_t>::max();

Status CheckLimit(const Array& array, std::string_view what, std::int64_t found) {
  if (found >= 1 && found <= kMaxIds) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat(array.name, ": expected ", what, " from 1 to ", kMaxIds, ", found ", found)};
}

Status CheckIsInteger(const Array& array) {
  if (!IsFloat(array.type)) return Status::Ok();
  return {ErrorKind::kData, StrCat(array.name, ": expected integers, found ", Name(array.type),
                                   "; save array.astype('int32')")};
}

// Eighths of the context, rounded up to full vectors. Each cut needs its own graph, and more of
// them would save little.
std::vector<std::int64_t> MakeCuts(std::int64_t context) {
  constexpr std::int64_t kVector = 16;
  const std::int64_t step = (context + 8 * kVector - 1) / (8 * kVector) * kVector;
  std::vector<std::int64_t> cuts;
  for (std::int64_t length = step; length < context; length += step) cuts.push_back(length);
  return cuts;
}

// Checks and collects the columns of a data set.
struct Builder {
  BadRecords bad;
  NodeShare* share;
  std::vector<Column> columns = {};
  std::int64_t samples = 0;

  Status Add(Column column, const IntegerRange& range) {
    GACCD_RETURN_IF_ERROR(CheckIntegers(column, samples, range, &bad, share));
    columns.push_back(std::move(column));
    return Status::Ok();
  }

  // Adds an array other than `tokens`. shapes: allowed shapes of a row.
  Status AddColumn(const Array& tokens, std::string_view name, std::optional<Array> array,
                   std::span<const Shape> shapes, const IntegerRange& range) {
    if (!array) return Status::Ok();
    GACCD_RETURN_IF_ERROR(CheckIsInteger(*array));
    GACCD_RETURN_IF_ERROR(CheckRows(*array, name, samples, tokens.name));
    Column column = Column::Rows(std::string(name), DType::kI32, *std::move(array));
    GACCD_RETURN_IF_ERROR(CheckShape(column, shapes));
    return Add(std::move(column), range);
  }

  // REQUIRES: the labels are the last column.
  Status AddWeights(const Array& tokens, Array array) {
    GACCD_RETURN_IF_ERROR(CheckRows(array, "weights", samples, tokens.name));
    Column column = Column::Rows("weights", DType::kF32, std::move(array));
    GACCD_RETURN_IF_ERROR(CheckShape(column, {&columns.back().spec.shape, 1}));
    GACCD_RETURN_IF_ERROR(CheckWeights(column, samples, &bad, share));
    columns.push_back(std::move(column));
    return Status::Ok();
  }

  [[nodiscard]] Status CheckShape(const Column& column, std::span<const Shape> shapes) const {
    if (std::ranges::find(shapes, column.spec.shape) != shapes.end()) return Status::Ok();
    Shape expected = shapes.back();
    expected.insert(expected.begin(), samples);
    return {ErrorKind::kData,
            StrCat(column.array.name, ": expected ", column.spec.name, " of shape ",
                   ToString(expected), shapes.size() > 1 ? " or [samples]" : "", ", found shape ",
                   ToString(column.array.shape))};
  }
};

}  // namespace

Result<std::unique_ptr<Dataset>> MakeTokenDataset(TokenArrays arrays, const TokenLimits& limits,
                                                  const BadRecordRules& rules, NodeShare* share) {
  const Array tokens = arrays.tokens;
  GACCD_RETURN_IF_ERROR(CheckIsInteger(tokens));
  if (tokens.shape.size() != 2 || tokens.data.empty()) {
    return Status(ErrorKind::kData,
                  StrCat(tokens.name, ": expected tokens of shape [samples, length], found shape ",
                         ToString(tokens.shape)));
  }
  GACCD_RETURN_IF_ERROR(CheckLimit(tokens, "a vocabulary", limits.vocabulary));
  GACCD_RETURN_IF_ERROR(CheckLimit(tokens, "segment types", limits.segment_types));
  const std::int64_t samples = tokens.shape[0];
  const std::int64_t length = tokens.shape[1];
  Builder builder{.bad = BadRecords(rules), .share = share, .samples = samples};
  GACCD_RETURN_IF_ERROR(builder.Add(Column::Rows("tokens", DType::kI32, tokens),
                                    {.end = limits.vocabulary, .what = "tokens"}));
  const bool has_lengths = arrays.lengths.has_value();
  const Shape one;
  const Shape row{length};
  GACCD_RETURN_IF_ERROR(builder.AddColumn(tokens, "lengths", std::move(arrays.lengths), {&one, 1},
                                          {.least = 1, .end = length + 1, .what = "lengths"}));
  GACCD_RETURN_IF_ERROR(builder.AddColumn(tokens, "segments", std::move(arrays.segments), {&row, 1},
                                          {.end = limits.segment_types, .what = "segments"}));
  const bool labelled = arrays.labels.has_value();
  const bool ids = labelled && arrays.labels->shape.size() == 2;
  const bool ragged = has_lengths && !ids;  // labels [samples, T] count beyond the length, too
  const std::int64_t classes = limits.classes > 0 || !ids ? limits.classes : limits.vocabulary;
  if (arrays.weights && !labelled) {
    return Status(ErrorKind::kConfig,
                  StrCat(arrays.weights->name, ": weights apply to labels, but there are none"));
  }
  if (labelled) GACCD_RETURN_IF_ERROR(CheckLimit(*arrays.labels, "classes", classes));
  if (labelled && !ids && limits.ignored_label >= 0 && limits.ignored_label < classes) {
    return Status(
        ErrorKind::kConfig,
        StrCat(arrays.labels->name, ": labels of shape [samples] all count: expected an ",
               "ignored_label outside of [0, ", classes, "), found ", limits.ignored_label));
  }
  const Shape both[] = {one, row};
  const auto ignored = ids ? std::optional<std::int64_t>(limits.ignored_label) : std::nullopt;
  GACCD_RETURN_IF_ERROR(builder.AddColumn(tokens, "labels", std::move(arrays.labels), both,
                                          {.end = classes, .or_else = ignored}));
  if (arrays.weights) {
    GACCD_RETURN_IF_ERROR(builder.AddWeights(tokens, *std::move(arrays.weights)));
  }
  return std::move(builder.bad)
      .Skip(MakeColumnDataset(std::move(builder.columns), samples,
                              {.classes = labelled ? classes : 0,
                               .vocabulary = limits.vocabulary,
                               .ignored_label = limits.ignored_label,
                               .cuts = ragged ? MakeCuts(length) : std::vector<std::int64_t>()}));
}

Result<std::unique_ptr<Dataset>> MakeStreamDataset(const Array& stream, std::int64_t length,
                                                   std::int64_t vocabulary,
                                                   const BadRecordRules& rules, NodeShare* share) {
  GACCD_RETURN_IF_ERROR(CheckIsInteger(stream));
  GACCD_RETURN_IF_ERROR(CheckLimit(stream, "a length", length));
  GACCD_RETURN_IF_ERROR(CheckLimit(stream, "a vocabulary", vocabulary));
  if (stream.shape.size() != 1 || stream.shape[0] <= length) {
    return Status(ErrorKind::kData,
                  StrCat(stream.name, ": expected tokens of shape [elements], at least ",
                         length + 1, ", found shape ", ToString(stream.shape)));
  }
  const std::int64_t samples = (stream.shape[0] - 1) / length;
  Builder builder{.bad = BadRecords(rules), .share = share, .samples = samples};
  for (const std::int64_t first : {0, 1}) {
    Column column{.spec = {first == 0 ? "tokens" : "labels", DType::kI32, {length}},
                  .array = stream,
                  .first = first,
                  .stride = length};
    GACCD_RETURN_IF_ERROR(builder.Add(std::move(column), {.end = vocabulary, .what = "tokens"}));
  }
  return std::move(builder.bad)
      .Skip(MakeColumnDataset(std::move(builder.columns), samples,
                              {.classes = vocabulary, .vocabulary = vocabulary}));
}

}  // namespace gaccd
