// Weights in the safetensors format. Values are f32; BF16 and F16 are converted, exactly, when
// read; of tensors of other types only names are read. Exception: the update count of a batch norm,
// in PyTorch an I64 scalar whose name ends in "num_batches_tracked", is converted to f32.
//
//   bytes 0..7  length of the header, u64 little endian, at most 16 MiB
//   header      a JSON object: tensor name -> {"dtype", "shape", "data_offsets": [begin, end]}, and
//               "__metadata__" -> {text: text}; padded with spaces
//   then        the values, little endian, row-major; offsets count from here. The tensors cover
//               the rest of the file exactly, without holes or overlaps.
// The layout is checked before memory for tensors is allocated.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

struct NamedTensor {
  std::string name;
  Shape shape;
  std::vector<float> values;  // row-major
};

// A tensor whose values are not read.
struct OtherTensor {
  std::string name;
  std::string dtype;  // as in the file: "I64"
};

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // f32, in the order of the file; names are unique
  std::vector<OtherTensor> others;
  std::map<std::string, std::string> metadata;
};

// Errors: kIo (unreadable, not a regular file), kData (content) with file, expected and found
// value.
Result<SafetensorsFile> ReadSafetensors(const std::string& path, Ticks* ticks = nullptr);

// Reads only the metadata; does not check the tensors. The same errors.
Result<std::map<std::string, std::string>> ReadSafetensorsMetadata(const std::string& path);

// ReadSafetensors() for a file in memory; `name` is for messages.
Result<SafetensorsFile> DecodeSafetensors(const std::string& name, std::span<const std::byte> file);

// A tensor to write; does not own its data.
struct TensorView {
  std::string_view name;
  std::span<const std::int64_t> shape;
  std::span<const float> values;
};

// Views that are valid as long as `tensors`.
[[nodiscard]] std::vector<TensorView> MakeViews(std::span<const NamedTensor> tensors);

// Writes atomically and durably: a temporary file next to `path` is renamed. A symbolic link is
// followed (output.h). mode: of the file, before the umask. Errors: kIo; kInternal for names
// that are not unique UTF-8 and for shapes that do not match their values.
Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                        unsigned mode = 0600,
                        const std::map<std::string, std::string>& metadata = {});

// kIo if WriteSafetensors() could not create or replace `path` now, also if it is a file that does
// not contain weights. To be called before a long computation.
Status CheckWeightsFile(const std::string& path);

}  // namespace gaccd
