// Signs of life of work that may take longer than others wait for it.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "collectives/base/result.h"

namespace gaccd {

// Called by the work every now and then; its error ends the work.
using TickFunction = std::function<Status()>;

// Of work that is measured in bytes: a tick with the first of them, then one every 64 MiB.
class Ticks {
 public:
  static constexpr std::uint64_t kBytes = std::uint64_t{64} << 20;

  explicit Ticks(TickFunction tick) : tick_(std::move(tick)) {}

  // So many more are done.
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
  std::uint64_t left_ = 1;  // until the next tick
};

}  // namespace gaccd
