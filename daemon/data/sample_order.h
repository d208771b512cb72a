// The order of samples: a permutation of the data set that is a function of (seed, epoch) only, so
// it is the same on any number of ranks and after a restart.
//
// A keyed Feistel network permutes [0, 2^n), 2^n >= size; values outside the data set are permuted
// again until they are inside (cycle walking), which gives a permutation of [0, size) with random
// access in O(1) memory. Integers only: the same on every machine.
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace gaccd {

class SampleOrder {
 public:
  // REQUIRES: size >= 1. Without shuffle every epoch is 0, 1, 2, ...
  SampleOrder(std::uint64_t seed, std::int64_t size, bool shuffle);

  [[nodiscard]] std::int64_t size() const { return size_; }
  [[nodiscard]] std::uint64_t seed() const { return seed_; }

  // The sample at `position` in [0, size) of epoch `epoch` >= 0.
  [[nodiscard]] std::int64_t IndexAt(std::int64_t epoch, std::int64_t position) const;

  // out[i] = the sample at run position first + i, where run position p is position p % size of
  // epoch p / size. Cheaper than IndexAt() for many positions.
  void Fill(std::int64_t first, std::span<std::int64_t> out) const;

 private:
  static constexpr int kRounds = 8;
  using RoundKeys = std::array<std::uint64_t, kRounds>;

  [[nodiscard]] RoundKeys EpochKeys(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t Permute(const RoundKeys& keys, std::int64_t position) const;

  std::uint64_t seed_;
  std::int64_t size_;
  bool shuffle_;
  int low_bits_ = 0;  // widths of the network's halves: low_bits_ + high_bits_ = n
  int high_bits_ = 0;
};

}  // namespace gaccd
