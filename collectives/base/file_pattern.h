// Paths with a '*' in the file name, which match several files.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// Whether the file name has a '*'. One in the name of a folder is a part of that name.
[[nodiscard]] inline bool IsPattern(std::string_view path) {
  return path.find('*', path.rfind('/') + 1) != std::string_view::npos;
}

// The paths of the matching files, keyed by the text that matches the first '*'; empty if there is
// none, or the folder does not exist. kIo: the folder cannot be read; kData: it has more than 2^20
// entries.
Result<std::map<std::string, std::string>> Glob(const std::string& pattern);

}  // namespace gaccd
