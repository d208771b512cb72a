// events.jsonl: an append-only file of JSON lines, one write(2) a line.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "daemon/telemetry/append_file.h"
#include "daemon/telemetry/event_text.h"

namespace gaccd {

// Lines that are lost, for the line that says so.
struct DroppedLines {
  std::int64_t lines = 0;  // since it was last said
  std::int64_t total = 0;
  std::string reason;  // of the first one
};

// Thread-safe. A write that fails loses its line and nothing else: the caller goes on, and when the
// file takes lines again, the first one says how many are missing.
class EventLog {
 public:
  using LineMaker = std::function<std::string(const LineStamp&)>;
  using NoticeMaker = std::function<std::string(const LineStamp&, const DroppedLines&)>;

  // `file` is open for appending at `path`. Without `notice` nothing is said about lost lines.
  EventLog(FileDescriptor file, std::string path, unsigned mode = kFileMode,
           NoticeMaker notice = nullptr)
      : file_(std::move(file), std::move(path), mode), notice_(std::move(notice)) {}

  // `make_line` gives the text of one line, without line break, for the stamp it gets: seq counts
  // from 1, lost lines included; ts never goes back within the file.
  void Write(std::string_view level, const LineMaker& make_line);
  // Waits until the disk has it.
  void Sync();

  // How many writes failed, and the first of them.
  [[nodiscard]] std::int64_t failures() const;
  [[nodiscard]] Status first_failure() const;
  [[nodiscard]] std::int64_t dropped() const;

 private:
  LineStamp NextStamp(std::string_view level);
  void TellDropped();

  mutable std::mutex mutex_;  // of everything below
  AppendFile file_;
  NoticeMaker notice_;
  std::int64_t seq_ = 0;
  std::string last_ts_;
  std::int64_t told_ = 0;  // of the dropped lines
};

}  // namespace gaccd
