// Text building for messages. Thread-safe; allocates, so not for inner loops.
#pragma once

#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>

namespace gaccd {

// The arguments, printed one after another by operator<<.
template <typename... Args>
[[nodiscard]] std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return std::move(out).str();
}

// "79.2 MB", of 10^6 bytes; "0.8 kB" where that is below 0.1 MB.
[[nodiscard]] std::string Megabytes(std::int64_t bytes);

inline constexpr std::size_t kMaxPrintable = 16'384;  // bytes

// `text` as it may appear in a log or on a terminal: a name or path in it cannot begin a line of
// its own, move the cursor or hide text. Lines after the first are indented, control characters and
// bytes that are no UTF-8 are shown as \x1b, and what is longer than kMaxPrintable is cut.
[[nodiscard]] std::string Printable(std::string_view text);

}  // namespace gaccd
