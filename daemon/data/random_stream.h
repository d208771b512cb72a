// Sequential random numbers of one stream (tensor/random.h).
#pragma once

#include <cstdint>

#include "daemon/tensor/random.h"

namespace gaccd {

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
