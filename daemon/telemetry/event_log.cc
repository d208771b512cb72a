#include "daemon/telemetry/event_log.h"

#include <algorithm>

namespace gaccd {

LineStamp EventLog::NextStamp(std::string_view level) {
  // The text sorts as the time does, so a clock that was set back is seen.
  last_ts_ = std::max(last_ts_, Timestamp());
  return {last_ts_, ++seq_, level};
}

void EventLog::Write(std::string_view level, const LineMaker& make_line) {
  const std::lock_guard lock(mutex_);
  TellDropped();
  file_.Append(make_line(NextStamp(level)));
}

void EventLog::TellDropped() {
  const std::int64_t total = file_.dropped();
  if (!notice_ || total == told_) return;
  const DroppedLines dropped{total - told_, total, file_.first_failure().message()};
  const bool told = file_.Append(notice_(NextStamp("warning"), dropped), AppendFile::Counted::kNo);
  if (told) {
    told_ = total;
  } else {
    --seq_;  // it did not take part
  }
}

void EventLog::Sync() {
  const std::lock_guard lock(mutex_);
  file_.Sync();
}

std::int64_t EventLog::failures() const {
  const std::lock_guard lock(mutex_);
  return file_.failures();
}

Status EventLog::first_failure() const {
  const std::lock_guard lock(mutex_);
  return file_.first_failure();
}

std::int64_t EventLog::dropped() const {
  const std::lock_guard lock(mutex_);
  return file_.dropped();
}

}  // namespace gaccd
