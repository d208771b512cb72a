#include "collectives/base/strings.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <sstream>
#include <utility>

namespace gaccd {

std::string Concatenate(std::initializer_list<Printed> values) {
  std::ostringstream out;
  for (const Printed& value : values) out << value;
  return std::move(out).str();
}

std::string Format(const char* format, ...) {
  char text[256];
  std::va_list values;
  va_start(values, format);
  std::vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return text;
}

std::vector<std::string> Split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    parts.emplace_back(text.substr(0, text.find(separator)));
    text.remove_prefix(std::min(parts.back().size() + 1, text.size()));
  }
  return parts;
}

bool HasPart(std::string_view list, std::string_view part, char separator) {
  return StrCat(separator, list, separator).find(StrCat(separator, part, separator)) !=
         std::string::npos;
}

std::string Megabytes(std::int64_t bytes) {
  const bool few = bytes > 0 && bytes < 100'000;
  return Format(few ? "%.1f kB" : "%.1f MB", static_cast<double>(bytes) / (few ? 1e3 : 1e6));
}

namespace {

unsigned ByteAt(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// The length of the UTF-8 character at the start of `text`, which is not empty; 0: invalid.
std::size_t CharacterBytes(std::string_view text) {
  const unsigned first = ByteAt(text, 0);
  if (first < 0x80) return 1;
  const std::size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || bytes > text.size()) return 0;
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((ByteAt(text, i) & 0xC0U) != 0x80) return 0;
  }
  const unsigned second = ByteAt(text, 1);
  const bool too_long = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool no_character = (first == 0xED && second > 0x9F) || (first == 0xF4 && second > 0x8F);
  return too_long || no_character ? 0 : bytes;
}

}  // namespace

std::string Printable(std::string_view text) {
  static constexpr std::string_view kHex = "0123456789abcdef";
  std::string_view rest = text.substr(0, kMaxPrintable);
  std::string out;
  out.reserve(rest.size());
  const auto escape = [&out](unsigned byte) {
    out += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
  };
  while (!rest.empty()) {
    const std::size_t bytes = CharacterBytes(rest);
    const unsigned byte = ByteAt(rest, 0);
    if (byte == '\n') {
      out += rest.size() > 1 ? "\n  " : "\n";
    } else if (bytes == 0 || (byte < 0x20 && byte != '\t') || byte == 0x7F) {
      escape(byte);
    } else if (byte == 0xC2 && ByteAt(rest, 1) < 0xA0) {  // U+0080 to U+009F
      escape(ByteAt(rest, 1));
    } else {
      out += rest.substr(0, bytes);
    }
    rest.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  if (text.size() > kMaxPrintable) {
    out += StrCat("... (", text.size() - kMaxPrintable, " more bytes)");
  }
  return out;
}

std::string PrintableLine(std::string_view text) {
  std::string line(text);
  std::ranges::replace(line, '\n', ' ');
  return Printable(line);
}

}  // namespace gaccd
