// How long updates take: a window of the newest durations, and what follows for the whole run.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "daemon/telemetry/update_events.h"

namespace gaccd {

// Not thread-safe. Seconds.
class StepStats {
 public:
  static constexpr std::size_t kWindow = 256;

  void Add(double seconds);

  [[nodiscard]] std::size_t count() const { return count_; }
  // The smallest duration of the window that at least this share (0..1] of it does not exceed; 0
  // when there is none.
  [[nodiscard]] double Quantile(double share) const;
  [[nodiscard]] double Mean() const;
  // Expected time for so many more updates: the mean of the window times that. The mean, not the
  // median, so that pauses (evaluation, checkpoints) inside an update count.
  [[nodiscard]] double Remaining(std::int64_t updates) const;

 private:
  std::array<double, kWindow> window_{};
  std::size_t next_ = 0;
  std::size_t count_ = 0;  // at most kWindow
};

// Not thread-safe.
class StepClock {
 public:
  // Of an update that has just ended.
  StepRates Count(const StepRecord& record);

 private:
  using Clock = std::chrono::steady_clock;

  StepStats updates_;          // how long an update takes
  StepStats intervals_;        // from update to update: evaluation and everything else included
  Clock::time_point last_{};   // the epoch: none yet
  Clock::time_point start_{};  // of the first update
  std::int64_t samples_ = 0;
};

// Which updates get a line in the log: every log_every-th, one when there was none for 10 s, the
// last, and those that were skipped. Not thread-safe.
class LineClock {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::seconds kLongest{10};

  LineClock(std::int64_t log_every, Clock::time_point start)
      : log_every_(log_every), last_line_(start) {}

  // Of every update, when it has ended. The samples per second since the line before, evaluations
  // and saves included; none: no line.
  std::optional<double> Due(const StepRecord& record, Clock::time_point now);

 private:
  const std::int64_t log_every_;
  Clock::time_point last_line_;
  std::int64_t samples_ = 0;  // since then
};

}  // namespace gaccd
