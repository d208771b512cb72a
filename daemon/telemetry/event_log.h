// EventLog: events.jsonl, an append-only file of JSON lines, one write(2) per line.
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

// Thread-safe. Callers never wait for the disk (line_writer.h). A failed write only loses its line:
// when the file accepts lines again, the first one contains the number of lost lines.
class EventLog {
 public:
  using LineMaker = std::function<std::string(const LineStamp&)>;
  using NoticeMaker = LineWriter::NoticeMaker;

  // `file` is open for appending at `path`. notice: makes the line about lost lines, with the stamp
  // of the last lost line; empty: no such line.
  static Result<std::unique_ptr<EventLog>> Start(FileDescriptor file, std::string path,
                                                 unsigned mode = kFileMode,
                                                 NoticeMaker notice = nullptr);

  // make_line: returns the text of a line, without line break, for its stamp: seq counts from 1,
  // including lost lines; ts never decreases within the file.
  void Write(std::string_view level, const LineMaker& make_line);
  // Writes the line of `record`, written by `who`.
  void Write(const RunIdentity& who, const EventRecord auto& record) {
    Write(GetLevel(record), [&](const LineStamp& stamp) { return EventJson(who, stamp, record); });
  }
  // Waits up to `limit` until everything is written (Sync: on disk); returns whether it is.
  bool Flush(std::chrono::milliseconds limit) { return writer_->Flush(limit); }
  bool Sync(std::chrono::milliseconds limit) {
    return writer_->Flush(limit, LineWriter::Until::kDisk);
  }

  // Number of failed writes, and the first error.
  [[nodiscard]] std::int64_t failures() const { return writer_->failures(); }
  [[nodiscard]] Status first_failure() const { return writer_->first_failure(); }
  [[nodiscard]] std::int64_t dropped() const { return writer_->dropped(); }
  // Time since the last Write().
  [[nodiscard]] std::chrono::steady_clock::duration quiet_for() const;
  // How long the file system has not responded; empty: no write is waiting.
  [[nodiscard]] std::optional<std::chrono::steady_clock::duration> stalled_for() const {
    return writer_->stalled_for();
  }

 private:
  explicit EventLog(std::unique_ptr<LineWriter> writer) : writer_(std::move(writer)) {}
  LineStamp NextStamp(std::string_view level);

  mutable std::mutex mutex_;  // protects the stamps, so that lines are added in their order
  std::int64_t seq_ = 0;
  std::string last_ts_;
  std::chrono::steady_clock::time_point last_write_ = std::chrono::steady_clock::now();
  const std::unique_ptr<LineWriter> writer_;
};

}  // namespace gaccd
