// LineWriter: lines at the end of a file, written by a thread of its own: who adds one never waits
// for the disk. What is added while the file system does not answer waits in memory, kMaxBytes at
// most; a line that does not fit, or cannot be written, is lost, and a later line says how many.
//
// Thread-safe. A thread that hangs in a call to the file system is left behind when this object is
// destroyed, with all that it uses.
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
  // The line about lost ones; called on the writer's thread. `last`: the stamp of the last line
  // before it, written or lost.
  using NoticeMaker = std::function<std::string(const LineStamp& last, const DroppedLines&)>;
  static constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
  // After it wrote what there was, the thread lets lines gather for so long, unless one waits in
  // Flush(): woken for each of a thousand lines a second, it would take 2 % of its core.
  static constexpr std::chrono::milliseconds kGatherTime{5};
  // What ~LineWriter() gives the lines that wait.
  static constexpr std::chrono::milliseconds kPatience{500};

  // Without `notice` nothing is said about lost lines. kOs when no thread can be had.
  static Result<std::unique_ptr<LineWriter>> Start(AppendFile file, NoticeMaker notice,
                                                   std::size_t most_bytes = kMaxBytes);
  ~LineWriter();
  LineWriter(const LineWriter&) = delete;
  LineWriter& operator=(const LineWriter&) = delete;

  // Lines reach the file in the order they are added.
  void Add(std::string line, const LineStamp& stamp = {});
  // Waits until what was added is written or lost, but not longer than `limit`: whether it is.
  // kDisk: also until the disk has it.
  enum class Until : std::uint8_t { kWritten, kDisk };
  bool Flush(std::chrono::milliseconds limit, Until until = Until::kWritten);

  [[nodiscard]] std::int64_t dropped() const;
  // Failed calls, and why the first line was lost.
  [[nodiscard]] std::int64_t failures() const;
  [[nodiscard]] Status first_failure() const;
  // How long the file system has not answered; none: nothing waits for it.
  [[nodiscard]] std::optional<std::chrono::steady_clock::duration> stalled_for() const;

 private:
  struct State;  // shared with the thread
  explicit LineWriter(std::shared_ptr<State> state) : state_(std::move(state)) {}
  static void WriteLines(State& state);

  const std::shared_ptr<State> state_;
  std::unique_ptr<WorkerThread> worker_;
};

}  // namespace gaccd
