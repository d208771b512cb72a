// A path with a '*' in the name of its file: several files.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

[[nodiscard]] inline bool IsPattern(std::string_view path) {
  return path.find('*') != std::string_view::npos;
}

// The paths of these files, by the text that the first '*' in the name of the file stands for;
// empty where there is none, or no such folder. kIo for a folder that cannot be read, kData for one
// with more than 2^20 entries.
Result<std::map<std::string, std::string>> Glob(const std::string& pattern);

}  // namespace gaccd
