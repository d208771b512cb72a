// The spelling of enumerators of proto/ for users.
#pragma once

#include <string>
#include <string_view>

namespace gaccd {

// SKIP_UPDATE is "skip-update".
[[nodiscard]] inline std::string ToKebabCase(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

}  // namespace gaccd
