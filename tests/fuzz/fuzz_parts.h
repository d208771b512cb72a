// An input of several files: parts with a line "-----" between them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gaccd {

template <std::size_t kParts>
std::array<std::string_view, kParts> SplitParts(const std::uint8_t* data, std::size_t size) {
  constexpr std::string_view kBetween = "-----\n";
  std::array<std::string_view, kParts> parts{};
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  for (std::string_view& part : parts) {
    const std::size_t end = rest.find(kBetween);
    part = rest.substr(0, end);
    if (end == std::string_view::npos) break;
    rest.remove_prefix(end + kBetween.size());
  }
  return parts;
}

}  // namespace gaccd
