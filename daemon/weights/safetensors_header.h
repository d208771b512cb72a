// The JSON header of a safetensors file: text to entries and back. Only the keys of the format are
// taken, and nothing that nests deeper, so memory is bounded by the length of the text.
#pragma once

#include <cstdint>
#include <map>
#include <span>
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
  std::int64_t begin = 0;  // bytes, from the end of the header
  std::int64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // as listed
  std::map<std::string, std::string> metadata;
};

// Errors: kData with what was expected, for which tensor, and what was found. Refuses a key that
// comes twice, an unknown or a missing field, and text that is not UTF-8. Offsets are not judged
// here.
Result<SafetensorsHeader> ParseSafetensorsHeader(std::string_view text);

// The header text, filled up with spaces to a multiple of 8 bytes. REQUIRES: UTF-8 texts.
[[nodiscard]] std::string SafetensorsHeaderText(const SafetensorsHeader& header);

}  // namespace gaccd
