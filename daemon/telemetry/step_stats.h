// How long updates take: a window of the newest durations, and what follows for the whole run.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/events.h"

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

  StepStats updates_;         // how long an update takes
  StepStats intervals_;       // from update to update: evaluation and everything else included
  Clock::time_point last_{};  // the epoch: none yet
};

}  // namespace gaccd
