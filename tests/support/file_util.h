// Small data files, made in memory, for the tests of the readers.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/temp_folder.h"

namespace gaccd {

inline std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

inline std::string ContentOfFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
std::string Raw(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

inline std::string IdxHeader(int type, std::initializer_list<std::uint32_t> dims) {
  std::string bytes{'\0', '\0', static_cast<char>(type), static_cast<char>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>((dim >> shift) & 255);
  }
  return bytes;
}

// `count` bytes 0, 1, 2, ... modulo `modulus`.
inline std::string Counting(std::size_t count, unsigned modulus = 256) {
  std::string bytes(count, '\0');
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<char>(i % modulus);
  return bytes;
}

inline std::string Gzip(std::string_view plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, plain.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// The bytes before the elements. `major` chooses the width of the length field.
inline std::string NpyHeader(std::string_view dictionary, int major = 1) {
  std::string header(dictionary);
  const std::size_t prefix = major == 1 ? 10 : 12;
  while ((prefix + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes = "\x93NUMPY";
  bytes += static_cast<char>(major);
  bytes += '\0';
  for (std::size_t i = 0; i < prefix - 8; ++i) {
    bytes += static_cast<char>((header.size() >> (8 * i)) & 255);
  }
  return bytes + header;
}

inline std::string NpyDictionary(std::string_view descr, std::string_view shape) {
  return "{'descr': '" + std::string(descr) +
         "', 'fortran_order': False, 'shape': " + std::string(shape) + ", }";
}

// Rows of so many f32.
inline std::string NpyFloats(std::span<const float> values, std::int64_t width) {
  return NpyHeader(NpyDictionary("<f4", "(" + std::to_string(std::ssize(values) / width) + ", " +
                                            std::to_string(width) + ")")) +
         Raw(values);
}

}  // namespace gaccd
