#include "daemon/telemetry/event_log.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {

void EventLog::Write(std::string_view level,
                     const std::function<std::string(const LineStamp&)>& make_line) {
  const std::lock_guard lock(mutex_);
  // The text sorts as the time does, so a clock that was set back is seen.
  last_ts_ = std::max(last_ts_, Timestamp());
  Append(make_line({last_ts_, ++seq_, level}));
}

void EventLog::Append(std::string line) {
  line += '\n';
  if (half_line_) line.insert(line.begin(), '\n');
  ssize_t written = -1;
  do {
    written = ::write(file_.get(), line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) {
    half_line_ = false;
    return;
  }
  if (written < 0) {
    Fail(ErrnoStatus("cannot write", path_));
    return;
  }
  half_line_ = half_line_ || written > 0;
  Fail({ErrorKind::kIo,
        StrCat("cannot write '", path_, "': ", written, " of ", line.size(), " bytes were taken")});
}

void EventLog::Sync() {
  const std::lock_guard lock(mutex_);
  // EINVAL: not a file that can be synced (a pipe).
  if (::fsync(file_.get()) != 0 && errno != EINVAL) Fail(ErrnoStatus("cannot write", path_));
}

std::int64_t EventLog::failures() const {
  const std::lock_guard lock(mutex_);
  return failures_;
}

Status EventLog::first_failure() const {
  const std::lock_guard lock(mutex_);
  return first_failure_;
}

void EventLog::Fail(Status status) {
  if (failures_++ == 0) first_failure_ = std::move(status);
}

}  // namespace gaccd
