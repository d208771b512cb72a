// Calls that may never return, for example to a file system that does not respond. They run on a
// separate thread, which is abandoned after a time limit.
#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string_view>
#include <thread>

#include "collectives/base/result.h"

namespace gaccd {

// Used by one thread. Call Join() before destroying what was started.
class AbandonableThread {
 public:
  AbandonableThread() = default;  // not started

  // `body` must share ownership of everything it uses. Errors: those of StartThread().
  static Result<AbandonableThread> Start(std::string_view name, std::function<void()> body);

  // Waits up to `limit` until `body` has returned. Returns whether it has; true if not started.
  [[nodiscard]] bool WaitFor(std::chrono::milliseconds limit) const;

  // Waits up to `limit` until `body` has returned. If it has not, abandons the thread, which ends
  // when `body` returns. Returns whether it has ended; true if not started. Later calls do nothing.
  bool Join(std::chrono::milliseconds limit);

 private:
  std::thread thread_;
  std::future<void> ended_;
};

// Calls `body` on such a thread and returns whether it has returned within `limit`. `meanwhile`, if
// set, is called on the calling thread, at once and then every 0.1 s. If no thread can be created,
// `body` is called on the calling thread, without a limit. Thread-safe.
[[nodiscard]] bool CallWithin(std::chrono::milliseconds limit, std::function<void()> body,
                              const std::function<void()>& meanwhile = nullptr);

}  // namespace gaccd
