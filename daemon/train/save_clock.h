// SaveClock: after which updates a run is saved, the same on all ranks.
//
// By updates it is arithmetic. By time the clock of rank 0 counts, and the ranks must hear of it;
// asking after every update would cost one message each. So rank 0 foretells, from the pace so far,
// half of the updates that are left until the time is up, and nobody asks before that: some ten
// messages between two saves, however many updates there are.
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

// How many updates to wait before asking again: 1 when the time is up or nearly so.
[[nodiscard]] std::int64_t UpdatesUntilNextLook(double elapsed_s, std::int64_t updates,
                                                double every_s);

class SaveClock {
 public:
  using Clock = std::chrono::steady_clock;

  // `step`: updates done when the run begins. now: tests set the time.
  SaveClock(SavePolicy policy, std::int64_t step,
            std::function<Clock::time_point()> now = Clock::now)
      : policy_(policy),
        now_(std::move(now)),
        last_save_(now_()),
        last_step_(step),
        next_look_(step + 1) {}

  // Whether to save after update `step`. Every rank asks after every update; collective when it is
  // time to look.
  Result<bool> Due(Communicator& comm, std::int64_t step);

 private:
  SavePolicy policy_;
  std::function<Clock::time_point()> now_;
  Clock::time_point last_save_;
  std::int64_t last_step_;
  std::int64_t next_look_;
};

}  // namespace gaccd
