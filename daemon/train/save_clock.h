// SaveClock: the updates after which a run is saved, the same on all ranks.
//
// Saving by updates is arithmetic. Saving by time uses the clock of rank 0, which must be
// communicated; a message after every update would be expensive. So rank 0 predicts the number of
// updates until the time is up. The next message is sent after half of them, but within one second
// and 1 % of the interval: updates may become slower.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct SavePolicy {
  std::int64_t every_updates = 0;  // 0: not by updates
  std::int64_t every_seconds = 0;  // 0: not by time

  [[nodiscard]] bool on() const { return every_updates > 0 || every_seconds > 0; }
};

// The number of updates until the next message: 1 if the time is up or almost up. left_s: until the
// save; update_s: duration of an update now; done: updates since the last save, the maximum result:
// the first updates of a run may have begun but not ended.
[[nodiscard]] std::int64_t UpdatesUntilNextCheck(double left_s, double every_s, double update_s,
                                                 std::int64_t done);

class SaveClock {
 public:
  using Clock = std::chrono::steady_clock;

  // step: updates done when the run begins. now: replaced by tests.
  SaveClock(SavePolicy policy, std::int64_t step,
            std::function<Clock::time_point()> now = Clock::now)
      : policy_(policy),
        now_(std::move(now)),
        last_save_(now_()),
        last_step_(step),
        last_check_(last_save_),
        checked_step_(step),
        next_check_(step + 1) {}

  // Whether to save after update `step`. Every rank must call it after every update; collective if
  // a message is due.
  Result<bool> Due(Communicator& comm, std::int64_t step);

 private:
  SavePolicy policy_;
  std::function<Clock::time_point()> now_;
  Clock::time_point last_save_;
  std::int64_t last_step_;
  Clock::time_point last_check_;
  std::int64_t checked_step_;
  std::int64_t next_check_;
};

}  // namespace gaccd
