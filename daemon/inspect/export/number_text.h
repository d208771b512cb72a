// Numbers as text for other programs. Thread-safe.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>

#include "daemon/inspect/watch/wall_time.h"

namespace gaccd {

// The shortest text that reads back the same; "inf", "-inf" and "nan" where it is none.
template <typename T>
[[nodiscard]] std::string NumberText(T value) {
  std::array<char, 32> text{};  // the longest double takes 24 characters
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// Since 1970.
[[nodiscard]] inline std::int64_t Nanoseconds(WallTime at) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(at.time_since_epoch()).count();
}

}  // namespace gaccd
