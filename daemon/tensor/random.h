// Counter-based random numbers: number j of stream (seed, i) can be computed at any time, on any
// rank. Integer arithmetic only, so identical on every machine, except normal numbers, whose tails
// use the logarithm of the C library. Not for cryptography.
#pragma once

#include <cstdint>

namespace gaccd {

// A bijection of 64-bit values in which every input bit changes about half of the output bits: the
// output function of SplitMix64 (Steele, Lea, Flood 2014).
[[nodiscard]] constexpr std::uint64_t Mix64(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// The step of SplitMix64: 2^64 divided by the golden ratio, odd.
inline constexpr std::uint64_t kGoldenStep = 0x9e3779b97f4a7c15U;

// Key of stream `b` of stream `a`. Mixed twice, so that (a, b) and (b, a) are unrelated.
[[nodiscard]] constexpr std::uint64_t StreamKey(std::uint64_t a, std::uint64_t b) {
  return Mix64(Mix64(a + kGoldenStep) + (b + 1) * kGoldenStep);
}

// Number j of a stream.
[[nodiscard]] constexpr std::uint64_t StreamValue(std::uint64_t key, std::uint64_t j) {
  return Mix64(key + (j + 1) * kGoldenStep);
}

// Standard normal number j of a stream.
[[nodiscard]] double StandardNormal(std::uint64_t key, std::uint64_t j);

// Quantile function of the standard normal distribution, 0 < p < 1, to 7 digits: Wichura, Algorithm
// AS 241 (PPND7), Applied Statistics 37, 1988.
[[nodiscard]] double NormalQuantile(double p);

// Sequential numbers of one stream. Its users are compiled without fused multiply-add.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t key) : key_(key) {}

  double Uniform(double low, double high) {
    const double share = static_cast<double>(StreamValue(key_, next_++) >> 11) * 0x1p-53;
    return low + (high - low) * share;
  }
  // Uniform in [0, count), with a bias below count / 2^53.
  std::int64_t Below(std::int64_t count) {
    return static_cast<std::int64_t>(Uniform(0, static_cast<double>(count)));
  }
  double Normal() { return StandardNormal(key_, next_++); }

 private:
  std::uint64_t key_;
  std::uint64_t next_ = 0;
};

}  // namespace gaccd
