// A data set made of columns: each tensor of a sample is a range of one array, at a fixed stride
// between samples.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/data/dataset.h"
#include "daemon/data/formats/array.h"
#include "daemon/data/normalize.h"

namespace gaccd {

class BadRecords;

struct Column {
  TensorSpec spec;         // f32: normalised when read; i32: REQUIRES integers in `array`
  Array array;             // REQUIRES: contains all ranges
  std::int64_t first = 0;  // first element of sample 0
  std::int64_t stride = 0;
  Affine affine = {};
  std::optional<StoredType> copied_from =
      std::nullopt;  // the type in the file, if CopyIntegers() converted it

  // One row of the array per sample.
  static Column Rows(std::string name, DType dtype, Array array, Affine affine = {});
};

// Allowed integers of a column: [least, end) and or_else.
struct IntegerRange {
  std::int64_t least = 0;
  std::int64_t end = 0;
  std::optional<std::int64_t> or_else = std::nullopt;
  std::string_view what = "labels";  // for messages
};

// kData with file, sample and column (counted from 0, over all values of a sample) for a value that
// is not finite before or after normalisation, outside of `range`, or not a finite weight of at
// least 0, unless `bad` accepts it. Files already checked according to `share` are skipped.
Status CheckFinite(const Column& column, std::int64_t samples, BadRecords* bad, NodeShare* share);
Status CheckIntegers(const Column& column, std::int64_t samples, const IntegerRange& range,
                     BadRecords* bad, NodeShare* share);
Status CheckWeights(const Column& column, std::int64_t samples, BadRecords* bad, NodeShare* share);

// kData with both counts if the number of rows is not `samples`, the number in the file `other`.
Status CheckRows(const Array& array, std::string_view what, std::int64_t samples,
                 const std::string& other);

// Copies a column of integers to i32, one row per sample. REQUIRES: `column` is Rows().
[[nodiscard]] Column CopyIntegers(Column column, std::int64_t samples);

// Appends the tensors of the columns to `spec`, in order. REQUIRES: the columns were checked.
[[nodiscard]] std::unique_ptr<Dataset> MakeColumnDataset(std::vector<Column> columns,
                                                         std::int64_t samples, SampleSpec spec);

}  // namespace gaccd
