// Calls that may never return, to a file system that does not answer: they are made on a thread of
// their own, which is waited for only so long and then left behind.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string_view>
#include <thread>

#include "collectives/base/result.h"

namespace gaccd {

// Belongs to one thread. Join() comes before the destructor of what was started.
class AbandonableThread {
 public:
  AbandonableThread() = default;  // not started

  // `body` shares the ownership of all that it touches. Errors: those of StartThread().
  static Result<AbandonableThread> Start(std::string_view name, std::function<void()> body);

  // Waits until `body` has returned, but not longer than `limit`. Whether it has; true where it was
  // not started.
  [[nodiscard]] bool WaitFor(std::chrono::milliseconds limit) const;

  // Waits until `body` has returned, but not longer than `limit`: the thread is then left behind
  // and ends when `body` returns. Whether it has ended; true where it was not started. Later calls
  // do nothing.
  bool Join(std::chrono::milliseconds limit);

 private:
  std::thread thread_;
  std::future<void> ended_;
};

// Calls `body` on such a thread. Whether it has returned within `limit`. `meanwhile`, if there is
// one, is called here at once and then every 0.1 s. Where the system has no more threads `body` is
// called here, without a limit. Thread-safe.
[[nodiscard]] bool CallWithin(std::chrono::milliseconds limit, std::function<void()> body,
                              const std::function<void()>& meanwhile = nullptr);

}  // namespace gaccd
