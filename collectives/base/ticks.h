// Ticks: progress reports of long work, so that others do not consider it hung.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {

// Called regularly by the work; an error ends the work.
using TickFunction = std::function<Status()>;

// For work in pieces of any duration: a tick at the end of a piece if `kInterval` has passed since
// the previous tick.
class TimedTicks {
 public:
  static constexpr std::chrono::seconds kInterval{1};

  explicit TimedTicks(TickFunction tick) : tick_(std::move(tick)) {}

  // A piece is done.
  [[nodiscard]] Status Done() {
    const auto now = std::chrono::steady_clock::now();
    if (now < next_) return Status::Ok();
    next_ = now + kInterval;
    return tick_();
  }

 private:
  TickFunction tick_;
  std::chrono::steady_clock::time_point next_ = std::chrono::steady_clock::now() + kInterval;
};

// For work measured in bytes: a tick at the first byte, then every 64 MiB.
class Ticks {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;

  explicit Ticks(TickFunction tick) : tick_(std::move(tick)) {}

  // Reports that `bytes` more bytes are done.
  [[nodiscard]] Status Add(std::uint64_t bytes) {
    if (bytes < left_) {
      left_ -= bytes;
      return Status::Ok();
    }
    left_ = kBytes;
    return tick_();
  }

 private:
  TickFunction tick_;
  std::uint64_t left_ = 1;  // bytes until the next tick
};

}  // namespace gaccd
