// events.jsonl: an append-only file of JSON lines, one write(2) a line.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/line_writer.h"

namespace gaccd {

// Thread-safe. Nobody waits for the disk (line_writer.h). A write that fails loses its line and
// nothing else: when the file takes lines again, the first one says how many are missing.
class EventLog {
 public:
  using LineMaker = std::function<std::string(const LineStamp&)>;
  using NoticeMaker = LineWriter::NoticeMaker;

  // `file` is open for appending at `path`. Without `notice` nothing is said about lost lines; its
  // stamp is that of the last line before it, which stands for a lost one.
  static Result<std::unique_ptr<EventLog>> Start(FileDescriptor file, std::string path,
                                                 unsigned mode = kFileMode,
                                                 NoticeMaker notice = nullptr);

  // `make_line` gives the text of one line, without line break, for the stamp it gets: seq counts
  // from 1, lost lines included; ts never goes back within the file.
  void Write(std::string_view level, const LineMaker& make_line);
  // The line of `record`, written by `who`.
  void Write(const RunIdentity& who, const EventRecord auto& record) {
    Write(LevelOf(record), [&](const LineStamp& stamp) { return EventJson(who, stamp, record); });
  }
  // Waits until the file has it (Sync: the disk), but not longer than `limit`: whether it has.
  bool Flush(std::chrono::milliseconds limit) { return writer_->Flush(limit); }
  bool Sync(std::chrono::milliseconds limit) {
    return writer_->Flush(limit, LineWriter::Until::kDisk);
  }

  // How many writes failed, and the first of them.
  [[nodiscard]] std::int64_t failures() const { return writer_->failures(); }
  [[nodiscard]] Status first_failure() const { return writer_->first_failure(); }
  [[nodiscard]] std::int64_t dropped() const { return writer_->dropped(); }
  // Since the last Write().
  [[nodiscard]] std::chrono::steady_clock::duration quiet_for() const;
  // How long the file system has not answered; none: nothing waits for it.
  [[nodiscard]] std::optional<std::chrono::steady_clock::duration> stalled_for() const {
    return writer_->stalled_for();
  }

 private:
  explicit EventLog(std::unique_ptr<LineWriter> writer) : writer_(std::move(writer)) {}
  LineStamp NextStamp(std::string_view level);

  mutable std::mutex mutex_;  // of the stamps: lines are added in their order
  std::int64_t seq_ = 0;
  std::string last_ts_;
  std::chrono::steady_clock::time_point last_write_ = std::chrono::steady_clock::now();
  const std::unique_ptr<LineWriter> writer_;
};

}  // namespace gaccd
