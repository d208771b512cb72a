// LineWriter: appends lines to a file on a separate thread, so that callers never wait for the
// disk. Lines added while the file system does not respond are kept in memory, up to kMaxBytes; a
// line that does not fit or cannot be written is lost, and a later line contains the number of lost
// lines.
//
// Thread-safe. A thread that hangs in a file system call is abandoned on destruction, with
// everything it uses.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/base/files.h"
#include "collectives/base/result.h"
#include "collectives/base/thread.h"
#include "daemon/telemetry/run_events.h"

namespace gaccd {

// AppendFile: appends lines to a file, normally with one write(2) each. A line that cannot be
// written is dropped and counted; after a partial line the next one starts on a new line. Every
// kCheckPeriod it checks whether the file still exists: a removed file is created again, and the
// lines since the last check count as dropped. Not thread-safe.
class AppendFile {
 public:
  static constexpr unsigned kNotAgain = ~0U;
  // `file` is open for appending at `path`; mode: for creating the file again, or kNotAgain.
  AppendFile(FileDescriptor file, std::string path, unsigned mode = kFileMode)
      : file_(std::move(file)), path_(std::move(path)), mode_(mode) {}

  static constexpr std::chrono::seconds kCheckPeriod{10};

  enum class Counted : std::uint8_t { kYes, kNo };

  // Appends a line; adds a line break if it has none. Returns false if the line is lost; `counted`
  // says whether it then counts as dropped.
  bool Append(std::string line, Counted counted = Counted::kYes);
  void ReopenIfRemoved();
  // Waits until everything is on disk.
  void Sync();

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::int64_t dropped() const { return dropped_; }
  // Number of failed calls, and the first error.
  [[nodiscard]] std::int64_t failures() const { return failures_; }
  [[nodiscard]] const Status& first_failure() const { return first_failure_; }

 private:
  void Fail(Status status);

  FileDescriptor file_;
  std::string path_;
  unsigned mode_;
  bool partial_line_ = false;     // the last write ended inside a line
  std::int64_t since_check_ = 0;  // lines since the last check
  std::chrono::steady_clock::time_point last_check_ = std::chrono::steady_clock::now();
  std::int64_t dropped_ = 0;
  std::int64_t failures_ = 0;
  Status first_failure_;
};

class LineWriter {
 public:
  // Makes the line about lost lines; called on the writer's thread. last: the stamp of the previous
  // line, written or lost.
  using NoticeMaker = std::function<std::string(const LineStamp& last, const DroppedLines&)>;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  // After writing, the thread collects lines for this time unless Flush() is waiting: waking it for
  // each of a thousand lines per second would take 2 % of its core.
  static constexpr std::chrono::milliseconds kGatherTime{5};
  // How long ~LineWriter() waits for pending lines.
  static constexpr std::chrono::milliseconds kPatience{500};

  // notice empty: lost lines are not reported. kOs if no thread can be created.
  static Result<std::unique_ptr<LineWriter>> Start(AppendFile file, NoticeMaker notice,
                                                   std::size_t max_bytes = kMaxBytes);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Lines are written in the order in which they are added.
  void Add(std::string line, const LineStamp& stamp = {});
  // Waits up to `limit` until everything added is written or lost (kDisk: also on disk); returns
  // whether it is.
  enum class Until : std::uint8_t { kWritten, kDisk };
  bool Flush(std::chrono::milliseconds limit, Until until = Until::kWritten);

  [[nodiscard]] std::int64_t dropped() const;
  // Number of failed calls, and why the first line was lost.
  [[nodiscard]] std::int64_t failures() const;
  [[nodiscard]] Status first_failure() const;
  // How long the file system has not responded; empty: no write is waiting.
  [[nodiscard]] std::optional<std::chrono::steady_clock::duration> stalled_for() const;

 private:
  struct State;  // shared with the thread
  explicit LineWriter(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void WriteLines(State& state);

  const std::shared_ptr<State> state_;
  std::unique_ptr<WorkerThread> worker_;
};

}  // namespace gaccd
