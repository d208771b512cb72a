#include "collectives/watchdog/exit_timer.h"

#include <unistd.h>

#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

ExitTimer::ExitTimer(std::chrono::milliseconds limit, int exit_code, std::string message) {
  message = Printable(message) + '\n';
  thread_ = std::thread([this, limit, exit_code, text = std::move(message)] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return in_time_; })) return;
    // One write, so that the lines of many ranks do not mix. Nothing can be done if it fails.
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    _exit(exit_code);
  });
}

ExitTimer::~ExitTimer() {
  {
    const std::lock_guard lock(mutex_);
    in_time_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

}  // namespace gaccd
