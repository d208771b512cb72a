// Helpers to parse lines of csv tables.
#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <iterator>
#include <string>
#include <string_view>
#include <system_error>

namespace gaccd {

// Removes the text up to and including `separator`, or all of it, from the front of `text`. Returns
// it without the separator.
inline std::string_view ConsumeUntil(std::string_view& text, char separator) {
  const std::string_view part = text.substr(0, text.find(separator));
  text.remove_prefix(std::min(text.size(), part.size() + 1));
  return part;
}

// Without leading and trailing blanks.
inline std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) + 1 - first);
}

// As from_chars() for the complete `text`, with an optional plus sign; invalid_argument if it is
// not a number.
template <typename T>
std::errc ParseNumber(std::string_view text, T* value) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return end == text.data() + text.size() ? error : std::errc::invalid_argument;
}

// Whether `field` denotes a missing number.
inline bool IsMissing(std::string_view field) {
  constexpr std::string_view kMissing[] = {"", "na", "n/a", "null", "none", "?", "-"};
  std::string lower(field);
  for (char& c : lower) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return std::ranges::find(kMissing, lower) != std::end(kMissing);
}

}  // namespace gaccd
