// An n-dimensional array as stored in a file, the unconverted result of the IDX and NPY readers,
// and the data sets made of such arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/formats/stored_type.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

class MappedFile;

// Positions of the values of a text file, which are normalised when read; for messages, counted
// from 1.
struct TextPlaces {
  std::vector<std::int64_t> lines;    // by sample
  std::vector<std::int64_t> columns;  // by index of the value in its sample
  std::string rounded = {};           // a value that f32 cannot represent; empty: none known
};

struct Array {
  std::string name;  // the file, for messages
  StoredType type = StoredType::kU8;
  Shape shape;                             // checked: its product is data.size() / SizeOf(type)
  std::span<const std::byte> data;         // row-major, little endian, unaligned
  std::shared_ptr<const void> owner;       // owns `data`; null: the caller owns it
  std::shared_ptr<const MappedFile> file;  // contains `data`; null: `data` is in memory
  std::shared_ptr<const TextPlaces> places = {};  // null unless from a text file
};

// The size of an array in bytes. kData if it does not fit 63 bits.
Result<std::int64_t> ArrayBytes(const std::string& name, const Shape& shape, StoredType type);

// features: floats, or integers of at most 16 bits, [samples, ...], at least two dimensions.
// targets: if classes > 0 labels of any integer type, [samples]; else vectors of floats, [samples]
// or [samples, width]. weights, optional: [samples], at least 0, only with labels.
// Errors: kData with both values for another type or shape, different numbers of samples, or a
// label outside [0, classes); kData with file, sample and column (counted from 0, over all values
// of a sample; of text files line and column) for a value that is not finite, unless `rules` allow
// the sample to be replaced; kConfig for an invalid normalisation. Values already checked according
// to `share` are not checked again.
Result<std::unique_ptr<Dataset>> MakeArrayDataset(Array features, Array targets,
                                                  std::int64_t classes,
                                                  const NormalizeSpec& normalize,
                                                  const BadRecordRules& rules = {},
                                                  NodeShare* share = nullptr,
                                                  std::optional<Array> weights = std::nullopt);

struct NamedArray {
  std::string name;
  Array array;
  // > 0: integers below it, of "tokens" [samples, length]; 0: features.
  // [samples] means [samples, 1].
  std::int64_t vocabulary = 0;
};
// A sample has one tensor per array, with its name. classes > 0: "labels" has integers below it,
// [samples] or [samples, length], and "weights", optional, has one value per label. Errors: as
// above; kConfig for a name that appears twice, "labels" without classes, classes without "labels",
// no array, or more than kMaxTensors.
Result<std::unique_ptr<Dataset>> MakeArraysDataset(std::vector<NamedArray> arrays,
                                                   std::int64_t classes = 0,
                                                   const BadRecordRules& rules = {},
                                                   NodeShare* share = nullptr);

}  // namespace gaccd
