// Interrupt: ends the waits of a communicator from another thread, with a reason, for example when
// the heartbeat has found a rank lost. Raised once; thread-safe. A check costs one atomic load.
#pragma once

#include <atomic>
#include <mutex>

#include "collectives/base/result.h"

namespace gaccd {

class Interrupt {
 public:
  // The first reason is kept. REQUIRES: !reason.ok().
  void Raise(const Status& reason) {
    const std::lock_guard lock(mutex_);
    if (reason_.ok()) reason_ = reason;
    raised_.store(true, std::memory_order_release);
  }

  // OK until it is raised.
  [[nodiscard]] Status status() const {
    if (!raised_.load(std::memory_order_acquire)) return Status::Ok();
    const std::lock_guard lock(mutex_);
    return reason_;
  }

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  Status reason_;
};

}  // namespace gaccd
