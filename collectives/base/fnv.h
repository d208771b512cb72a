// FNV-1a hash. Not cryptographic.
#pragma once

#include <cstdint>
#include <string_view>

namespace gaccd {

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

}  // namespace gaccd
