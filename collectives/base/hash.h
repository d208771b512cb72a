// Hashes of bytes and text, and their hexadecimal text.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace gaccd {

// FNV-1a hash. Not cryptographic.
inline constexpr std::uint64_t kFnvBasis = 0xcbf29ce484222325U;

// One step for one byte. A word instead of a byte also gives a hash, but not the published FNV-1a.
[[nodiscard]] constexpr std::uint64_t FnvStep(std::uint64_t hash, std::uint64_t word) {
  return (hash ^ word) * 0x100000001b3U;
}

[[nodiscard]] constexpr std::uint64_t Fnv1a(std::string_view text) {
  std::uint64_t hash = kFnvBasis;
  for (const char c : text) hash = FnvStep(hash, static_cast<unsigned char>(c));
  return hash;
}

// 128-bit FNV-1a.
struct Fnv128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
};
[[nodiscard]] constexpr Fnv128 Fnv1a128(std::string_view text) {
  __extension__ using Word = unsigned __int128;
  constexpr auto kPrime = (Word{1} << 88) + 0x13b;
  Word hash = (Word{0x6c62272e07bb0142} << 64) + 0x62b821756295c58d;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
  return {static_cast<std::uint64_t>(hash >> 64), static_cast<std::uint64_t>(hash)};
}

// Hexadecimal text, lower case.
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

// SHA-256 of a stream of bytes, by OpenSSL; Hex() of it equals the output of sha256sum(1).
using Sha256Digest = std::array<std::byte, 32>;

class Sha256 {
 public:
  Sha256();  // throws std::bad_alloc if OpenSSL has no memory
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void Update(std::span<const std::byte> bytes);
  // Ends the stream; the object must not be used afterwards.
  [[nodiscard]] Sha256Digest Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gaccd
