// The order in which samples are used: a permutation of the data set that is a function of
// (seed, epoch) alone, so it is the same on 1 rank and on 240, and after a restart.
//
// A keyed Feistel network permutes [0, 2^n), 2^n >= size; a value outside the data set is sent
// through again until it falls inside ("cycle walking"), which is a permutation of [0, size). So
// any position can be asked for at any time, in O(1) memory. Integers only: the same on every
// machine.
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

  // Run positions count over all epochs: p is position p % size of epoch p / size.
  // out[i] = the sample at run position first + i. Cheaper than IndexAt for many positions.
  void Fill(std::int64_t first, std::span<std::int64_t> out) const;

 private:
  static constexpr int kRounds = 8;
  using RoundKeys = std::array<std::uint64_t, kRounds>;

  [[nodiscard]] RoundKeys KeysOf(std::int64_t epoch) const;
  [[nodiscard]] std::int64_t Permute(const RoundKeys& keys, std::int64_t position) const;

  std::uint64_t seed_;
  std::int64_t size_;
  bool shuffle_;
  int low_bits_ = 0;  // the network's two halves: low_bits_ and high_bits_, n bits together
  int high_bits_ = 0;
};

}  // namespace gaccd
