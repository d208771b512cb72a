// RankSteps: one record a minute, or another period, of the updates of a rank.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "collectives/base/process_memory.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

// Of one rank, over the updates since its line before.
struct RankStepRecord {
  std::int64_t step = 0;     // the newest of them
  std::int64_t updates = 0;  // how many they are
  double dur_max_s = 0;
  // Means over them.
  double dur_s = 0;
  double data_s = 0;
  double fwd_bwd_s = 0;
  double reduce_s = 0;
  double opt_s = 0;
  double wait_s = 0;
  std::int64_t memory_bytes = 0;  // now; ProcessMemory
};

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
