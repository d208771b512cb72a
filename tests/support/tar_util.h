// Tar files, byte by byte (POSIX ustar), for the tests of their reader.
#pragma once

#include <cstdio>
#include <string>

namespace gaccd::tests {

// A member with its header, filled up to a block of 512 bytes. type: '0' a file, '2' a symbolic
// link, '5' a folder.
inline std::string TarMember(const std::string& name, const std::string& content, char type = '0') {
  std::string header(512, '\0');
  const auto put = [&header](std::size_t at, const std::string& text) {
    header.replace(at, text.size(), text);
  };
  const auto octal = [](std::size_t value) {
    char text[12];
    std::snprintf(text, sizeof(text), "%011zo", value);
    return std::string(text);
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, octal(content.size()));
  put(136, octal(0));
  put(148, "        ");
  header[156] = type;
  put(257, std::string("ustar\00000", 8));
  std::size_t sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, octal(sum).substr(5) + std::string(1, '\0') + " ");
  const std::string padding((512 - content.size() % 512) % 512, '\0');
  return header + content + padding;
}

inline std::string TarEnd() { return std::string(1024, '\0'); }

}  // namespace gaccd::tests
