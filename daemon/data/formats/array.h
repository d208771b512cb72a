// An n-dimensional array as stored in a file, its readers for IDX and NPY, and the data sets made
// of such arrays.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

// Element types of data files. Batches only have f32 and i32.
enum class StoredType : std::uint8_t { kU8, kI8, kU16, kI16, kU32, kI32, kU64, kI64, kF32, kF64 };

// Calls use(T{}) with the C++ type T.
template <typename Use>
constexpr auto VisitStored(StoredType type, const Use& use) {
  switch (type) {
    case StoredType::kU8:
      return use(std::uint8_t{});
    case StoredType::kI8:
      return use(std::int8_t{});
    case StoredType::kU16:
      return use(std::uint16_t{});
    case StoredType::kI16:
      return use(std::int16_t{});
    case StoredType::kU32:
      return use(std::uint32_t{});
    case StoredType::kI32:
      return use(std::int32_t{});
    case StoredType::kU64:
      return use(std::uint64_t{});
    case StoredType::kI64:
      return use(std::int64_t{});
    case StoredType::kF64:
      return use(double{});
    case StoredType::kF32:
      break;
  }
  return use(float{});
}

// The same for floating-point types or integers only, so that `use` is not compiled for the others.
// REQUIRES: `type` is of this kind.
template <typename Use>
constexpr auto VisitStoredFloat(StoredType type, const Use& use) {
  return type == StoredType::kF64 ? use(double{}) : use(float{});
}
template <typename Use>
constexpr auto VisitStoredInteger(StoredType type, const Use& use) {
  return VisitStored(type, [&use](auto element) {
    if constexpr (std::is_integral_v<decltype(element)>) {
      return use(element);
    } else {
      return decltype(use(std::int64_t{})){};
    }
  });
}

[[nodiscard]] constexpr std::size_t SizeOf(StoredType type) {
  return VisitStored(type, [](auto element) { return sizeof element; });
}

[[nodiscard]] constexpr bool IsFloat(StoredType type) {
  return type == StoredType::kF32 || type == StoredType::kF64;
}

[[nodiscard]] constexpr std::string_view Name(StoredType type) {
  constexpr std::string_view kNames[] = {"u8",  "i8",  "u16", "i16", "u32",
                                         "i32", "u64", "i64", "f32", "f64"};
  return kNames[static_cast<std::size_t>(type)];
}

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

// The IDX format of MNIST, plain or compressed by gzip (detected by content, not by name).
//
//   bytes 0..1  zero
//   byte  2     element type: 0x08 = u8, the only supported one
//   byte  3     number of dimensions, 1..8
//   then        each dimension, u32 big endian
//   then        the elements, row-major; the file ends with them

// The array in `file`: of a plain file a view without owner. A compressed file is decompressed into
// its own memory, or with a leader's `share` into memory shared by the node; at most as much as its
// header says, and only if a file of this size can contain so much. Errors: kData with `name`,
// expected and found value; NoMemory().
Result<Array> DecodeIdx(const std::string& name, std::span<const std::byte> file,
                        NodeShare* share = nullptr);

// The same for a file, which remains mapped while the array is a view of it. Uses what the leader
// of the node has decompressed. Errors: also kIo.
Result<Array> LoadIdx(const std::string& path, NodeShare* share = nullptr);

// The NPY format of NumPy, versions 1.0, 2.0 and 3.0.
//
//   bytes 0..5  0x93 "NUMPY"
//   bytes 6..7  major and minor version
//   then        header length, u16 (version 1) or u32, little endian
//   then        the header: a Python dictionary with the keys descr, fortran_order and shape, in
//               any order, then spaces and a line end
//   then        the elements; the file ends with them
// Supported: C order, little endian, integers of 8 to 64 bits, '<f4' (f32), '<f8' (f64). Errors
// name any other type.

// The array in `file`, as a view without owner. kData with `name`, expected and found value.
Result<Array> DecodeNpy(const std::string& name, std::span<const std::byte> file);

// The same for a file, which remains mapped as long as the array exists. Errors: also kIo.
Result<Array> LoadNpy(const std::string& path);

}  // namespace gaccd
