// RankSteps: summarises the updates of a rank in one record per minute, or another period.
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
