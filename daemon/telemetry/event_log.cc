#include "daemon/telemetry/event_log.h"

#include <algorithm>
#include <utility>

namespace gaccd {

Result<std::unique_ptr<EventLog>> EventLog::Start(FileDescriptor file, std::string path,
                                                  unsigned mode, NoticeMaker notice) {
  AppendFile lines(std::move(file), std::move(path), mode);
  GACCD_ASSIGN_OR_RETURN(auto writer, LineWriter::Start(std::move(lines), std::move(notice)));
  return std::unique_ptr<EventLog>(new EventLog(std::move(writer)));
}

LineStamp EventLog::NextStamp(std::string_view level) {
  // ts never decreases, even if the clock is set back: texts sort like times.
  last_ts_ = std::max(last_ts_, Timestamp());
  return {last_ts_, ++seq_, level};
}

void EventLog::Write(std::string_view level, const LineMaker& make_line) {
  const std::lock_guard lock(mutex_);
  const LineStamp stamp = NextStamp(level);
  writer_->Add(make_line(stamp), stamp);
  last_write_ = std::chrono::steady_clock::now();
}

std::chrono::steady_clock::duration EventLog::quiet_for() const {
  const std::lock_guard lock(mutex_);
  return std::chrono::steady_clock::now() - last_write_;
}

}  // namespace gaccd
