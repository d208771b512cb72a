// Statistics of update durations: a window of the newest ones, and predictions for the whole run.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "collectives/base/memory.h"
#include "daemon/telemetry/update_events.h"

namespace gaccd {

// Not thread-safe. Seconds.
class StepStats {
 public:
  static constexpr std::size_t kWindow = 256;

  void Add(double seconds);

  [[nodiscard]] std::size_t count() const { return count_; }
  // The quantile of the window for share (0..1]: the smallest duration that at least this share
  // does not exceed; 0 if empty.
  [[nodiscard]] double Quantile(double share) const;
  [[nodiscard]] double Mean() const;
  // Expected time for `updates` more updates: mean of the window times their number. The mean, not
  // the median, so that pauses (evaluation, checkpoints) count.
  [[nodiscard]] double Remaining(std::int64_t updates) const;

 private:
  std::array<double, kWindow> window_{};
  std::size_t next_ = 0;
  std::size_t count_ = 0;  // at most kWindow
};

// Not thread-safe.
class StepClock {
 public:
  // Call after each update.
  StepRates Count(const StepRecord& record);

 private:
  using Clock = std::chrono::steady_clock;

  StepStats updates_;          // durations of updates
  StepStats intervals_;        // between ends of updates: includes evaluation and everything else
  StepStats sizes_;            // samples of these updates
  Clock::time_point last_{};   // epoch of the clock: none yet
  Clock::time_point start_{};  // start of the first update
  double samples_ = 0;
};

// Selects the updates with a line in the log: every log_every-th, one if there was none for 10 s,
// the last, and skipped ones. Not thread-safe.
class LineClock {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kLongest{10};

  LineClock(std::int64_t log_every, Clock::time_point start)
      : log_every_(log_every), last_line_(start) {}

  // Call after every update. Returns the samples per second since the previous line, including
  // evaluations and saves; empty: no line.
  std::optional<double> Due(const StepRecord& record, Clock::time_point now);

 private:
  const std::int64_t log_every_;
  Clock::time_point last_line_;
  double samples_ = 0;  // since the previous line
};

// RankSteps: summarises the updates of a rank in one record per minute, or another period.

// Not thread-safe.
class RankSteps {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RankSteps(Clock::duration period) : period_(period) {}

  // Call after every update. Returns a record for the first one, and then one per `period`.
  std::optional<RankStepRecord> Add(const StepRecord& step, Clock::time_point now);
  // A record of the updates since the last one, if there were any.
  std::optional<RankStepRecord> MakeRecord();

 private:
  const Clock::duration period_;
  std::optional<Clock::time_point> last_;
  RankStepRecord sum_;
  ProcessMemory memory_;
};

}  // namespace gaccd
