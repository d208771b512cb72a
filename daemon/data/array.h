// An n-dimensional array as a file holds it, and the data set made of features and targets. What
// the IDX and NPY readers give, before anything is converted.
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
#include "daemon/data/stored_type.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

class MappedFile;

// Where the values of a text file, which are normalised already, are; for messages. Lines and
// columns are counted from 1.
struct TextPlaces {
  std::vector<std::int64_t> lines;    // by sample
  std::vector<std::int64_t> columns;  // by value of a sample
  std::string rounded = {};           // a value that f32 does not hold; empty: none that is known
};

struct Array {
  std::string name;  // the file, for messages
  StoredType type = StoredType::kU8;
  Shape shape;                             // checked: its product is data.size() / SizeOf(type)
  std::span<const std::byte> data;         // row-major, little endian, aligned to nothing
  std::shared_ptr<const void> owner;       // keeps `data` alive; null when the caller does
  std::shared_ptr<const MappedFile> file;  // that `data` is a part of; null: memory
  std::shared_ptr<const TextPlaces> places = {};  // of a text file
};

// The bytes of an array of that shape. Error kData when they do not fit 63 bits.
Result<std::int64_t> ArrayBytes(const std::string& name, const Shape& shape, StoredType type);

// features: floats, or integers of at most 16 bits, [samples, ...], at least two dimensions.
// targets: labels of any type of integer, [samples], when classes > 0; else vectors of floats,
// [samples] or [samples, width]. weights, if there are: [samples], at least 0, with labels only.
// Errors: kData with both values for another type or shape, for different counts of samples, and
// for a label outside [0, classes); kData naming file, sample and column (counted from 0, over all
// values of a sample; of a text file line and column) for a value that is not finite, unless
// `rules` let such samples be replaced; kConfig for a normalisation that cannot be. Values that
// `share` knows to be finite are not looked at again.
Result<std::unique_ptr<Dataset>> MakeArrayDataset(Array features, Array targets,
                                                  std::int64_t classes,
                                                  const NormalizeSpec& normalize,
                                                  const BadRecordRules& rules = {},
                                                  NodeShare* share = nullptr,
                                                  std::optional<Array> weights = std::nullopt);

struct NamedArray {
  std::string name;
  Array array;
  // > 0: integers below it, [samples, length]; 0: features. [samples] is [samples, 1].
  std::int64_t vocabulary = 0;
};
// A sample has a tensor for each array, with its name. classes > 0: that of "labels" has integers
// below it, [samples] or [samples, length], and "weights", if there are, has one for each of them.
// Errors: as above; kConfig for a name that appears twice, for "labels" without classes and the
// other way round, and for more arrays than kMaxTensors.
Result<std::unique_ptr<Dataset>> MakeArraysDataset(std::vector<NamedArray> arrays,
                                                   std::int64_t classes = 0,
                                                   const BadRecordRules& rules = {},
                                                   NodeShare* share = nullptr);

}  // namespace gaccd
