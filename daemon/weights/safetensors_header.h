// The JSON header of a safetensors file: text to entries and back. Other keys than those of the
// format are errors.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/tensor/shape.h"

namespace gaccd {

struct SafetensorsEntry {
  std::string name;
  std::string dtype;
  Shape shape;
  std::int64_t begin = 0;  // in bytes from the end of the header
  std::int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // in the order of the text
  std::map<std::string, std::string> metadata;
};

// kData, with the tensor, expected and found, for a key that appears twice, an unknown or missing
// field, and text that is not UTF-8. Does not check offsets.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text);

// The header text, padded with spaces to a multiple of 8 bytes. REQUIRES: all texts are UTF-8.
[[nodiscard]] std::string SafetensorsHeaderText(const SafetensorsHeader& header);

}  // namespace gaccd
