// Numbers as text: exact, and independent of the locale.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace gaccd {

// The complete text as a decimal number. Empty for anything else, also for spaces, a plus sign or a
// number that does not fit T.
template <typename T>
[[nodiscard]] std::optional<T> ToNumber(std::string_view text) {
  T value{};
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, value);
  if (error != std::errc() || end != last) return std::nullopt;
  return value;
}

// As ToNumber() in [0, 2^63), without any sign.
[[nodiscard]] inline std::optional<std::int64_t> ToCount(std::string_view text) {
  return text.starts_with('-') ? std::nullopt : ToNumber<std::int64_t>(text);
}

// The shortest text that parses to the same value; "inf", "-inf", "nan".
template <typename T>
[[nodiscard]] std::string NumberText(T value) {
  std::array<char, 32> text{};  // a double has at most 24 characters
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

}  // namespace gaccd
