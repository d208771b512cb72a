// RankSteps: one record a minute, or another period, of the updates of a rank.
#pragma once

#include <chrono>
#include <optional>

#include "collectives/base/process_memory.h"
#include "daemon/telemetry/update_events.h"

namespace gaccd {

// Not thread-safe.
class RankSteps {
 public:
  using Clock = std::chrono::steady_clock;

  explicit RankSteps(Clock::duration period) : period_(period) {}

  // Of every update, when it has ended. A record after the first one, and then when the one before
  // is `period` ago.
  std::optional<RankStepRecord> Add(const StepRecord& step, Clock::time_point now);
  // Of what was added since the last record, if anything was.
  std::optional<RankStepRecord> Take();

 private:
  const Clock::duration period_;
  std::optional<Clock::time_point> last_;
  RankStepRecord sum_;
  ProcessMemory memory_;
};

}  // namespace gaccd
