// Hexadecimal text, lower case.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace gaccd {

inline constexpr std::string_view kHexDigits = "0123456789abcdef";

// Two digits per byte.
[[nodiscard]] inline std::string Hex(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) {
    text += kHexDigits[std::to_integer<std::size_t>(byte >> 4)];
    text += kHexDigits[std::to_integer<std::size_t>(byte & std::byte{15})];
  }
  return text;
}

// 16 digits.
[[nodiscard]] inline std::string Hex(std::uint64_t word) {
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; word >>= 4) text[i] = kHexDigits[word & 15];
  return text;
}

}  // namespace gaccd
