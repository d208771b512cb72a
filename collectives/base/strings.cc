#include "collectives/base/strings.h"

#include <cstdio>

namespace gaccd {

std::string Megabytes(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f MB", static_cast<double>(bytes) / 1e6);
  return text;
}

std::string Printable(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  const std::string_view shown = text.substr(0, kMaxPrintable);
  std::string out;
  out.reserve(shown.size());
  for (std::size_t i = 0; i < shown.size(); ++i) {
    const auto byte = static_cast<unsigned char>(shown[i]);
    const auto next = i + 1 < shown.size() ? static_cast<unsigned char>(shown[i + 1]) : 0U;
    if (byte == '\n') {
      out += i + 1 < shown.size() ? "\n  " : "\n";
    } else if ((byte < 0x20 && byte != '\t') || byte == 0x7F) {
      out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    } else if (byte == 0xC2 && next >= 0x80 && next < 0xA0) {  // U+0080 to U+009F
      out += {'\\', 'x', kHex[next >> 4], kHex[next & 15]};
      ++i;
    } else {
      out += shown[i];
    }
  }
  if (shown.size() < text.size()) {
    out += StrCat("... (", text.size() - shown.size(), " more bytes)");
  }
  return out;
}

}  // namespace gaccd
