// Events as lines of JSON, and their file: one flat object of less than 4096 bytes (texts are
// truncated), without line breaks. The keys are those of the records (event_record.h). Pure
// functions; thread-safe.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/telemetry/event_record.h"
#include "daemon/telemetry/line_writer.h"

namespace gaccd {

// The member "v" of all lines and of STATUS.json. Readers refuse larger ones, as the meaning of
// members may have changed.
inline constexpr std::int64_t kLineVersion = 1;
// kConfig: `path` was written by a newer gaccd. found: its version; lines without one are old.
[[nodiscard]] Status CheckLineVersion(const std::string& path, std::optional<std::int64_t> found);

// The current time: RFC 3339, UTC, microseconds: "2026-11-20T03:04:05.123456Z".
[[nodiscard]] std::string Timestamp();

// An object with only the envelope.
[[nodiscard]] JsonObject MakeEnvelope(const RunIdentity& who, const LineStamp& stamp,
                                      const char* event);

template <EventRecord Record>
[[nodiscard]] std::string EventJson(const RunIdentity& who, const LineStamp& stamp,
                                    const Record& record) {
  JsonObject out = MakeEnvelope(who, stamp, Record::kEvent);
  Record::VisitFields(out, record);
  return out.Finish();
}

// Parses a line of any content. Missing fields, and fields of another type, have the values of a
// new Record; kData if they are `required`, or if it is not such an event.
template <EventRecord Record>
[[nodiscard]] Result<Record> ReadEvent(std::string_view line,
                                       std::initializer_list<std::string_view> required = {}) {
  const auto refuse = [](std::string_view problem) {
    return Status(ErrorKind::kData, StrCat("no ", Record::kEvent, " record: ", problem));
  };
  const std::optional<Json> object = Json::ParseObject(line);
  if (!object) return refuse("expected one object of JSON");
  const std::string* const name = object->text("ev");
  if (name != nullptr && *name != Record::kEvent) return refuse(StrCat("its event is ", *name));
  Record record;
  JsonFields fields(*object);
  Record::VisitFields(fields, record);
  const std::string problem = fields.FindProblem(required);
  if (!problem.empty()) return refuse(problem);
  return record;
}

// EventLog: events.jsonl, an append-only file of these lines, one write(2) per line. Thread-safe.
// Callers never wait for the disk (line_writer.h). A failed write only loses its line:
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
