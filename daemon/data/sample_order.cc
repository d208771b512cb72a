#include "daemon/data/sample_order.h"

#include <algorithm>
#include <bit>

#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

// A network of very few bits generates few permutations: of four bits, for 16 samples, only even
// ones. The longer walk does not matter for such small sets.
constexpr int kMinBits = 8;

[[nodiscard]] std::uint64_t LowMask(int bits) { return (std::uint64_t{1} << bits) - 1; }

}  // namespace

SampleOrder::SampleOrder(std::uint64_t seed, std::int64_t size, bool shuffle)
    : seed_(seed), size_(size), shuffle_(shuffle) {
  const auto needed = static_cast<int>(std::bit_width(static_cast<std::uint64_t>(size - 1)));
  const int bits = std::max(kMinBits, needed);
  low_bits_ = bits / 2;
  high_bits_ = bits - low_bits_;
}

SampleOrder::RoundKeys SampleOrder::EpochKeys(std::int64_t epoch) const {
  const std::uint64_t stream = StreamKey(seed_, static_cast<std::uint64_t>(epoch));
  RoundKeys keys;
  for (std::size_t round = 0; round < keys.size(); ++round) {
    keys[round] = StreamValue(stream, round);
  }
  return keys;
}

// Each round XORs a keyed function of one half into the other half, a bijection for any function
// and any widths of the halves.
std::int64_t SampleOrder::Permute(const RoundKeys& keys, std::int64_t position) const {
  const std::uint64_t low_mask = LowMask(low_bits_);
  const std::uint64_t high_mask = LowMask(high_bits_);
  auto value = static_cast<std::uint64_t>(position);
  do {
    std::uint64_t low = value & low_mask;
    std::uint64_t high = value >> low_bits_;
    for (std::size_t round = 0; round < keys.size(); round += 2) {
      low ^= Mix64(high ^ keys[round]) & low_mask;
      high ^= Mix64(low ^ keys[round + 1]) & high_mask;
    }
    value = (high << low_bits_) | low;
  } while (value >= static_cast<std::uint64_t>(size_));
  return static_cast<std::int64_t>(value);
}

std::int64_t SampleOrder::IndexAt(std::int64_t epoch, std::int64_t position) const {
  return shuffle_ ? Permute(EpochKeys(epoch), position) : position;
}

void SampleOrder::Fill(std::int64_t first, std::span<std::int64_t> out) const {
  std::int64_t epoch = first / size_;
  std::int64_t position = first % size_;
  RoundKeys keys = EpochKeys(epoch);
  for (std::int64_t& index : out) {
    if (position == size_) {
      position = 0;
      keys = EpochKeys(++epoch);
    }
    index = shuffle_ ? Permute(keys, position) : position;
    ++position;
  }
}

}  // namespace gaccd
