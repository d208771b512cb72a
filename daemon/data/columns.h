// A data set made of columns: each tensor of a sample is a range of one array, the same number of
// elements further for the next sample.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/data/array.h"
#include "daemon/data/dataset.h"
#include "daemon/data/normalize.h"
#include "daemon/data/stored_type.h"

namespace gaccd {

class BadRecords;

struct Column {
  TensorSpec spec;         // f32: normalised on the way; i32: REQUIRES integers in `array`
  Array array;             // REQUIRES: holds all ranges
  std::int64_t first = 0;  // element where sample 0 begins
  std::int64_t stride = 0;
  Affine affine = {};
  std::optional<StoredType> copied_from =
      std::nullopt;  // by CopyIntegers(), from this type of a file

  // The whole array, in rows.
  static Column Rows(std::string name, DType dtype, Array array, Affine affine = {});
};

// Integers of a column are in [least, end), or this other value.
struct IntegerRange {
  std::int64_t least = 0;
  std::int64_t end = 0;
  std::optional<std::int64_t> or_else = std::nullopt;
  std::string_view what = "labels";  // for messages
};

// kData naming file, sample and column (counted from 0, over all values of a sample) for a value
// that is not finite, also after normalisation; unless `bad` takes it. Values that `share` knows to
// be finite are not looked at again. The same for integers, and for weights, which are at least 0.
Status CheckFinite(const Column& column, std::int64_t samples, BadRecords* bad, NodeShare* share);
Status CheckIntegers(const Column& column, std::int64_t samples, const IntegerRange& range,
                     BadRecords* bad, NodeShare* share);
Status CheckWeights(const Column& column, std::int64_t samples, BadRecords* bad, NodeShare* share);

// kData, with both counts, when `array` has not as many rows as the file `other` has samples.
Status CheckRows(const Array& array, std::string_view what, std::int64_t samples,
                 const std::string& other);

// The values of a column of integers as i32 in memory of their own, in rows.
[[nodiscard]] Column CopyIntegers(Column column, std::int64_t samples);

// `spec` is completed with the tensors of the columns, in their order. REQUIRES: they were checked.
[[nodiscard]] std::unique_ptr<Dataset> MakeColumnDataset(std::vector<Column> columns,
                                                         std::int64_t samples, SampleSpec spec);

}  // namespace gaccd
