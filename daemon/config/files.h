// Whole small files from outside: job texts and flag files.
#pragma once

#include <cstddef>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

inline constexpr std::size_t kMaxTextBytes = std::size_t{1} << 20;

// The content of a regular file of at most kMaxTextBytes. Errors: kIo with the path and the
// system's reason; `too_large` when it is larger.
[[nodiscard]] Result<std::string> ReadSmallFile(const std::string& path, ErrorKind too_large);

}  // namespace gaccd
