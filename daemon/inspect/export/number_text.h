// Numbers as text for other programs.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/inspect/watch/wall_time.h"

namespace gaccd {

// The shortest text that parses to the same value; "inf", "-inf", "nan".
template <typename T>
[[nodiscard]] std::string NumberText(T value) {
  std::array<char, 32> text{};  // a double has at most 24 characters
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// Since 1970.
[[nodiscard]] inline std::int64_t Nanoseconds(WallTime at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace gaccd
