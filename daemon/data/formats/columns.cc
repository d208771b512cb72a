#include "daemon/data/formats/columns.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "collectives/base/simd.h"
#include "collectives/base/strings.h"
#include "daemon/data/bad_records.h"
#include "daemon/data/mapped_file.h"
#include "daemon/data/node_share.h"

namespace gaccd {
namespace {

static_assert(std::endian::native == std::endian::little, "files are read as little endian");

// Elements of files are unaligned.
template <typename T>
T Load(const std::byte* data, std::size_t i) {
  T value{};
  std::memcpy(&value, data + i * sizeof(T), sizeof(T));
  return value;
}

using RowFunction = void (*)(const std::byte* in, std::size_t count, Affine affine, void* out);

// An Affine in the type that stored values of type T are computed in.
template <typename T>
struct Normalized {
  using Number = std::conditional_t<sizeof(T) == 1, float, double>;

  explicit Normalized(Affine affine)
      : factor(static_cast<Number>(affine.factor)), shift(static_cast<Number>(affine.shift)) {}
  [[nodiscard]] float operator()(T stored) const {
    return static_cast<float>(static_cast<Number>(stored) * factor + shift);
  }

  Number factor;
  Number shift;
};

template <typename T>
GACCD_SIMD_CLONES void CopyFloats(const std::byte* in, std::size_t count, Affine affine,
                                  void* out) {
  auto* to = static_cast<float*>(out);
  const Normalized<T> normalized(affine);
  for (std::size_t i = 0; i < count; ++i) to[i] = normalized(Load<T>(in, i));
}

template <typename T>
GACCD_SIMD_CLONES void CopyToI32(const std::byte* in, std::size_t count, Affine /*affine*/,
                                 void* out) {
  auto* to = static_cast<std::int32_t*>(out);
  for (std::size_t i = 0; i < count; ++i) to[i] = static_cast<std::int32_t>(Load<T>(in, i));
}

RowFunction SelectRowFunction(const Column& column) {
  const StoredType type = column.array.type;
  if (column.spec.dtype == DType::kI32) {
    return VisitStoredInteger(
        type, [](auto element) -> RowFunction { return &CopyToI32<decltype(element)>; });
  }
  return VisitStored(type,
                     [](auto element) -> RowFunction { return &CopyFloats<decltype(element)>; });
}

class ColumnDataset final : public Dataset {
 public:
  ColumnDataset(std::vector<Column> columns, std::int64_t samples, SampleSpec spec)
      : columns_(std::move(columns)), samples_(samples), spec_(std::move(spec)) {
    for (const Column& column : columns_) {
      spec_.tensors.push_back(column.spec);
      const std::size_t element = SizeOf(column.array.type);
      const auto count = static_cast<std::size_t>(column.spec.elements());
      if (column.spec.name == "lengths" && column.spec.dtype == DType::kI32) {
        lengths_ = rows_.size();
      }
      if (column.spec.name == "labels") labels_ = rows_.size();
      if (column.spec.name == "weights") weights_ = rows_.size();
      rows_.push_back(
          {.data = column.array.data.data() + static_cast<std::size_t>(column.first) * element,
           .stride = static_cast<std::size_t>(column.stride) * element,
           .bytes = count * element,
           .count = count,
           .per_token = IsPerToken(column.spec),
           .affine = column.affine,
           .copy = SelectRowFunction(column)});
    }
  }

  [[nodiscard]] std::int64_t size() const override { return samples_; }
  [[nodiscard]] const SampleSpec& spec() const override { return spec_; }

  [[nodiscard]] Status CheckUnchanged() const override {
    for (const Column& column : columns_) {
      const MappedFile* file = column.array.file.get();
      if (file != nullptr) GACCD_RETURN_IF_ERROR(file->CheckUnchanged());
    }
    return Status::Ok();
  }

  [[nodiscard]] std::int64_t Length(std::int64_t index) const override {
    const Rows& rows = rows_[*lengths_];
    std::int32_t length = 0;
    rows.copy(rows.row(index), 1, {}, &length);
    return length;
  }

  // A label per sample is a class and always counts.
  [[nodiscard]] LabelCounts CountLabels(std::span<const std::int64_t> indices) const override {
    const bool may_be_ignored = labels_ && !columns_[*labels_].spec.shape.empty();
    if (!may_be_ignored && !weights_) return {};
    const bool may_be_padded = may_be_ignored && lengths_ && rows_[*labels_].per_token;
    std::vector<std::int32_t> labels(may_be_ignored ? rows_[*labels_].count : 0);
    std::vector<float> weights(weights_ ? rows_[*weights_].count : 0);
    const auto counts = [&](std::size_t i) {
      return (labels.empty() || labels[i] != spec_.ignored_label) &&
             (weights.empty() || weights[i] > 0);
    };
    LabelCounts found;
    for (const std::int64_t index : indices) {
      if (may_be_ignored) CopyRow(rows_[*labels_], index, labels.data());
      if (weights_) CopyRow(rows_[*weights_], index, weights.data());
      std::size_t i = 0;
      const std::size_t count = std::max(labels.size(), weights.size());
      while (i < count && !counts(i)) ++i;
      found.unlabelled += i == count ? 1 : 0;
      if (!may_be_padded) continue;
      i = std::max(i, static_cast<std::size_t>(Length(index)));
      while (i < count && !counts(i)) ++i;
      found.padded += i < count ? 1 : 0;
    }
    return found;
  }

  [[nodiscard]] std::string conversions() const override {
    std::string text;
    for (const Column& column : columns_) {
      const std::string_view stored = Name(column.copied_from.value_or(column.array.type));
      const std::string_view read = Name(column.spec.dtype);
      if (const auto& places = column.array.places; places != nullptr && !places->rounded.empty()) {
        text += StrCat(text.empty() ? "" : ", ", column.array.name, ": ", places->rounded);
      }
      if (stored == read) continue;
      text += StrCat(text.empty() ? "" : ", ", column.spec.name, " ", stored, " -> ", read);
    }
    return text;
  }

  [[nodiscard]] std::optional<bool> has_integer_features() const override {
    for (const Column& column : columns_) {
      if (column.spec.name != "features" || column.array.places != nullptr) continue;  // of text
      return !IsFloat(column.array.type);
    }
    return std::nullopt;
  }

  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    for (std::size_t c = 0; c < rows_.size(); ++c) {
      const Rows& rows = rows_[c];
      const bool cut = out.length > 0 && rows.per_token;
      const std::size_t count = cut ? static_cast<std::size_t>(out.length) : rows.count;
      const auto out_bytes = static_cast<std::size_t>(RowBytes(spec_.tensors[c], out.length));
      auto* to = out.tensor<std::byte>(c);
      for (std::size_t i = 0; i < indices.size(); ++i) {
        if (i + kRowsAhead < indices.size()) Prefetch(rows, indices[i + kRowsAhead]);
        rows.copy(rows.row(indices[i]), count, rows.affine, to);
        to += out_bytes;
      }
    }
  }

 private:
  struct Rows {
    const std::byte* data = nullptr;
    std::size_t stride = 0;  // in bytes
    std::size_t bytes = 0;   // of one row
    std::size_t count = 0;   // its elements
    bool per_token = false;
    Affine affine;
    RowFunction copy = nullptr;

    [[nodiscard]] const std::byte* row(std::int64_t index) const {
      return data + static_cast<std::size_t>(index) * stride;
    }
  };

  static void CopyRow(const Rows& rows, std::int64_t index, void* to) {
    rows.copy(rows.row(index), rows.count, rows.affine, to);
  }

  // Rows are read at random, so their start is prefetched; the hardware prefetches the rest of a
  // long row.
  static constexpr std::size_t kRowsAhead = 4;
  static constexpr std::size_t kMaxPrefetchBytes = 2048;
  static void Prefetch(const Rows& rows, std::int64_t index) {
    const std::byte* row = rows.row(index);
    const std::size_t bytes = std::min(rows.bytes, kMaxPrefetchBytes);
    for (std::size_t at = 0; at < bytes; at += 64) __builtin_prefetch(row + at);
  }

  std::vector<Column> columns_;
  std::vector<Rows> rows_;              // of columns_
  std::optional<std::size_t> lengths_;  // index of the column of this name, as the next two
  std::optional<std::size_t> labels_;
  std::optional<std::size_t> weights_;
  std::int64_t samples_;
  SampleSpec spec_;
};

// Whether any value is NaN or infinite after normalisation: all its exponent bits are set. No early
// exit, so that the loop is vectorised.
template <typename T>
GACCD_SIMD_CLONES bool AnyNotFinite(const std::byte* data, std::size_t count, Affine affine) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t any = 0;
  const Normalized<T> normalized(affine);
  for (std::size_t i = 0; i < count; ++i) {
    const float value = normalized(Load<T>(data, i));
    any |=
        static_cast<std::uint32_t>((std::bit_cast<std::uint32_t>(value) & kExponent) == kExponent);
  }
  return any != 0;
}

// Negative integers are large as unsigned, so one comparison checks both ends.
template <typename T>
GACCD_SIMD_CLONES bool AnyOutside(const std::byte* data, std::size_t count, std::uint64_t least,
                                  std::uint64_t width, std::uint64_t or_else) {
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<std::uint64_t>(Load<T>(data, i));
    any |= static_cast<std::uint32_t>(value - least >= width && value != or_else);
  }
  return any != 0;
}

template <typename T>
bool AnyInvalidWeight(const std::byte* data, std::size_t count) {
  std::uint32_t any = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const auto value = static_cast<float>(Load<T>(data, i));
    any |= static_cast<std::uint32_t>(!(value >= 0 && value <= std::numeric_limits<float>::max()));
  }
  return any != 0;
}

// " for sample 3, column 0", or for text files " in line 5, column 1". table: include the column.
std::string PositionText(const Column& column, std::int64_t sample, std::size_t at, bool table) {
  if (column.array.places != nullptr) {
    const TextPlaces& places = *column.array.places;
    return StrCat(" in line ", places.lines[static_cast<std::size_t>(sample)], ", column ",
                  places.columns[at]);
  }
  return StrCat(" for sample ", sample, table ? StrCat(", column ", at) : "");
}

// Checks all values of the column. bad(data, count): whether any of them is bad. Calls
// report(sample, column, data) for the first bad value of each sample.
template <typename Bad, typename Report>
Status Scan(const Column& column, std::int64_t samples, std::string_view use, NodeShare* share,
            const Bad& bad, const Report& report) {
  const std::string known =
      StrCat(use, " ", column.spec.name, " ", column.first, " ", column.array.name);
  if (share != nullptr && share->IsChecked(known)) return Status::Ok();
  constexpr std::size_t kBlock = 16384;  // only the values of a bad block are checked one by one
  constexpr std::size_t kElementsATick = 1024 * kBlock;
  const std::size_t element = SizeOf(column.array.type);
  const auto row = static_cast<std::size_t>(column.stride);  // rows are contiguous
  const std::byte* data =
      column.array.data.data() + static_cast<std::size_t>(column.first) * element;
  const std::size_t elements = static_cast<std::size_t>(samples) * row;
  bool good = true;
  for (std::size_t begin = 0; begin < elements; begin += kBlock) {
    const std::size_t end = std::min(elements, begin + kBlock);
    if (share != nullptr && begin % kElementsATick == 0) GACCD_RETURN_IF_ERROR(share->Tick());
    if (!bad(data + begin * element, end - begin)) continue;
    good = false;
    for (std::size_t at = begin; at < end; ++at) {
      if (!bad(data + at * element, 1)) continue;
      GACCD_RETURN_IF_ERROR(
          report(static_cast<std::int64_t>(at / row), at % row, data + at * element));
      at += row - 1 - at % row;  // the sample is known to be bad
    }
  }
  if (good && share != nullptr) share->MarkChecked(known);
  return Status::Ok();
}

}  // namespace

Column Column::Rows(std::string name, DType dtype, Array array, Affine affine) {
  Column column{.spec = {std::move(name), dtype, {array.shape.begin() + 1, array.shape.end()}},
                .array = std::move(array),
                .affine = affine};
  column.stride = column.spec.elements();
  return column;
}

// A NaN would only show updates later, in the weights, without its file.
Status CheckFinite(const Column& column, std::int64_t samples, BadRecords* bad, NodeShare* share) {
  if (!IsFloat(column.array.type)) return Status::Ok();
  const Affine affine = column.affine;
  // A file may be used twice with different normalisations.
  const std::string use = StrCat(std::bit_cast<std::uint64_t>(affine.factor), " ",
                                 std::bit_cast<std::uint64_t>(affine.shift));
  return VisitStoredFloat(column.array.type, [&](auto element) {
    using T = decltype(element);
    const auto report = [&](std::int64_t sample, std::size_t at, const std::byte* data) {
      const auto stored = Load<T>(data, 0);
      const bool finite = std::isfinite(static_cast<double>(stored));
      return bad->Add(
          sample, {ErrorKind::kData,
                   StrCat(column.array.name, ": expected finite values",
                          column.array.places != nullptr ? " in f32 after normalize"
                          : !finite                      ? ""
                          : sizeof(T) > sizeof(float)    ? " in f32 after normalize"
                                                         : " after normalize",
                          ", found ", +stored, PositionText(column, sample, at, /*table=*/true))});
    };
    return Scan(
        column, samples, use, share,
        [&](const std::byte* data, std::size_t count) {
          return AnyNotFinite<T>(data, count, affine);
        },
        report);
  });
}

Status CheckIntegers(const Column& column, std::int64_t samples, const IntegerRange& range,
                     BadRecords* bad, NodeShare* share) {
  const std::string other = range.or_else ? StrCat(" or ", *range.or_else) : "";
  const std::string use = StrCat(range.least, " ", range.end, other);
  const auto least = static_cast<std::uint64_t>(range.least);
  const auto or_else = static_cast<std::uint64_t>(range.or_else.value_or(range.least));
  const std::uint64_t width = static_cast<std::uint64_t>(range.end) - least;
  return VisitStoredInteger(column.array.type, [&](auto element) {
    using T = decltype(element);
    const auto report = [&](std::int64_t sample, std::size_t at, const std::byte* data) {
      return bad->Add(
          sample, {ErrorKind::kData,
                   StrCat(column.array.name, ": expected ", range.what, " in [", range.least, ", ",
                          range.end, ")", other, ", found ", +Load<T>(data, 0),
                          PositionText(column, sample, at, !column.spec.shape.empty()))});
    };
    return Scan(
        column, samples, use, share,
        [&](const std::byte* data, std::size_t count) {
          return AnyOutside<T>(data, count, least, width, or_else);
        },
        report);
  });
}

Status CheckWeights(const Column& column, std::int64_t samples, BadRecords* bad, NodeShare* share) {
  return VisitStored(column.array.type, [&](auto element) {
    using T = decltype(element);
    const auto report = [&](std::int64_t sample, std::size_t at, const std::byte* data) {
      return bad->Add(sample,
                      {ErrorKind::kData,
                       StrCat(column.array.name, ": expected finite weights of at least 0, found ",
                              +Load<T>(data, 0),
                              PositionText(column, sample, at, !column.spec.shape.empty()))});
    };
    return Scan(column, samples, "weights", share, AnyInvalidWeight<T>, report);
  });
}

Status CheckRows(const Array& array, std::string_view what, std::int64_t samples,
                 const std::string& other) {
  const std::int64_t found = array.shape.empty() ? 0 : array.shape[0];
  if (found == samples) return Status::Ok();
  return {ErrorKind::kData,
          StrCat(array.name, ": expected ", samples, " ", what, ", as many as samples in ", other,
                 ", found ", found, " (shape ", ToString(array.shape), ")")};
}

Column CopyIntegers(Column column, std::int64_t samples) {
  const auto count = static_cast<std::size_t>(samples * column.spec.elements());
  const auto values = std::make_shared<std::vector<std::int32_t>>(count);
  SelectRowFunction(column)(column.array.data.data(), count, {}, values->data());
  if (column.array.file != nullptr) column.copied_from = column.array.type;
  column.array.type = StoredType::kI32;
  column.array.data = std::as_bytes(std::span(*values));
  column.array.owner = values;
  column.array.file = nullptr;
  return column;
}

std::unique_ptr<Dataset> MakeColumnDataset(std::vector<Column> columns, std::int64_t samples,
                                           SampleSpec spec) {
  return std::make_unique<ColumnDataset>(std::move(columns), samples, std::move(spec));
}

}  // namespace gaccd
