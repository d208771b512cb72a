// Weights in the safetensors format, the one PyTorch users exchange. Values are read and written as
// f32; tensors of other types are only named. Except the count of a batch norm, as PyTorch has it:
// an I64 scalar whose name ends in "num_batches_tracked", an f32 here.
//
//   bytes 0..7  length of the header, u64 little endian, at most 16 MiB
//   header      a JSON object: tensor name -> {"dtype", "shape", "data_offsets": [begin, end]}, and
//               "__metadata__" -> {text: text}; filled up with spaces
//   then        the values, little endian, row-major; offsets count from here. Together the tensors
//               cover the rest of the file exactly: no holes, no overlaps, nothing after it.
// A file that breaks a rule is refused, before memory for its tensors is taken.
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
  std::vector<float> values;  // row-major; as many as the shape says
};

// One whose values are not read.
struct OtherTensor {
  std::string name;
  std::string dtype;  // of the format: "I64"
};

struct SafetensorsFile {
  std::vector<NamedTensor> tensors;  // f32, in the order of the file; names are unique
  std::vector<OtherTensor> others;
  std::map<std::string, std::string> metadata;
};

// Errors: kIo (cannot be read, not a regular file), kData (content) with the file, the expected and
// the found value.
Result<SafetensorsFile> ReadSafetensors(const std::string& path, Ticks* ticks = nullptr);

// Of such a file the metadata alone, without a look at its tensors. The same errors.
Result<std::map<std::string, std::string>> ReadSafetensorsMetadata(const std::string& path);

// ReadSafetensors() of a file in memory; `name` is for messages.
Result<SafetensorsFile> DecodeSafetensors(const std::string& name, std::span<const std::byte> file);

// A tensor to write; everything belongs to the caller.
struct TensorView {
  std::string_view name;
  std::span<const std::int64_t> shape;
  std::span<const float> values;
};

// Valid as long as the tensors.
[[nodiscard]] std::vector<TensorView> ViewsOf(std::span<const NamedTensor> tensors);

// Writes a temporary file next to `path`, makes it durable and renames it, so `path` holds the old
// file or the whole new one, whatever happens; a link is followed (output_file.h). Errors: kIo;
// kInternal for names that are not unique UTF-8 text and for shapes that do not fit their values.
// `mode` is the file's, before the umask: weights are for their user, as all that a run writes.
Status WriteSafetensors(const std::string& path, std::span<const TensorView> tensors,
                        unsigned mode = 0600,
                        const std::map<std::string, std::string>& metadata = {});

// Before a long computation: that WriteSafetensors() can make or replace `path` right now.
// kIo, also when it is a file with something else in it than weights, such as a job text.
Status CheckWeightsFile(const std::string& path);

}  // namespace gaccd
