// Text building for messages. Thread-safe; allocates, so not for inner loops.
#pragma once

#include <sstream>
#include <string>

namespace gaccd {

// The arguments, printed one after another by operator<<.
template <typename... Args>
[[nodiscard]] std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

}  // namespace gaccd
