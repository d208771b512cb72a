#include "collectives/liveness/deadline/deadline.h"

#include <unistd.h>

#include <utility>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"

namespace gaccd {
namespace {

constexpr std::chrono::milliseconds kForTheMessage{1'000};

}  // namespace

ExitTimer::ExitTimer(std::chrono::milliseconds limit, int exit_code, std::string message) {
  message = Printable(message) + '\n';
  auto thread = StartThread("a time limit", [this, limit, exit_code, text = std::move(message)] {
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, limit, [this] { return in_time_; })) return;
    // One write, so that lines of many ranks do not mix. A failure cannot be handled. stderr may be
    // a file on a file system that does not respond, or a pipe that nobody reads.
    (void)CallWithin(kForTheMessage, [text] {
      [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
    });
    _exit(exit_code);
  });
  if (thread.ok()) thread_ = *std::move(thread);
}

ExitTimer::~ExitTimer() {
  {
    const std::lock_guard lock(mutex_);
    in_time_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

}  // namespace gaccd
