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

#include "collectives/base/result.h"
#include "collectives/base/worker_thread.h"
#include "daemon/telemetry/append_file.h"
#include "daemon/telemetry/run_events.h"

namespace gaccd {

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
