// events.jsonl: an append-only file of JSON lines, one write(2) a line.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {

// Thread-safe. A write that fails loses its line and nothing else: the caller goes on, and the next
// line starts a fresh one.
class EventLog {
 public:
  // `file` is open for appending; `path` is for messages.
  EventLog(FileDescriptor file, std::string path)
      : file_(std::move(file)), path_(std::move(path)) {}

  // `make_line` gives the text of one line, without line break, for the stamp it gets: seq counts
  // from 1, ts never goes back within the file.
  void Write(std::string_view level, const std::function<std::string(const LineStamp&)>& make_line);
  // Waits until the disk has it.
  void Sync();

  // How many writes failed, and the first of them.
  [[nodiscard]] std::int64_t failures() const;
  [[nodiscard]] Status first_failure() const;

 private:
  void Append(std::string line);
  void Fail(Status status);

  mutable std::mutex mutex_;
  FileDescriptor file_;
  std::string path_;
  std::int64_t seq_ = 0;
  std::string last_ts_;
  bool half_line_ = false;  // the last write ended inside a line
  std::int64_t failures_ = 0;
  Status first_failure_;
};

}  // namespace gaccd
