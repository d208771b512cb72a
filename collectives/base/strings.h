// Text for messages. Thread-safe; allocates, so not for inner loops.
#pragma once

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace gaccd {

// `value`; every NaN without a sign, so that it is printed as "nan", never "-nan".
template <typename T>
[[nodiscard]] const T& WithoutNanSign(const T& value) {
  if constexpr (std::is_floating_point_v<T>) {
    static const T kNan = std::numeric_limits<T>::quiet_NaN();
    if (value != value) return kNan;
  }
  return value;
}

// Concatenates the arguments, each printed by operator<<, NaN as "nan".
template <typename... Args>
[[nodiscard]] std::string StrCat(const Args&... args) {
  std::ostringstream out;
  (out << ... << WithoutNanSign(args));
  return std::move(out).str();
}

// Without the mark with which Windows programs begin files in UTF-8.
[[nodiscard]] inline std::string_view WithoutByteOrderMark(std::string_view text) {
  return text.substr(text.starts_with("\xEF\xBB\xBF") ? 3 : 0);
}

// "79.2 MB", of 10^6 bytes; "0.8 kB" below 0.1 MB.
[[nodiscard]] std::string Megabytes(std::int64_t bytes);

inline constexpr std::size_t kMaxPrintable = 16'384;  // bytes

// `text` made safe for logs and terminals: names or paths in it cannot start a new log line, move
// the cursor or hide text. Lines after the first are indented, control characters and invalid UTF-8
// are shown as \x1b, and text longer than kMaxPrintable is truncated.
[[nodiscard]] std::string Printable(std::string_view text);

}  // namespace gaccd
