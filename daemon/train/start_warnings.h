// What is no error but seldom meant: said by rank 0 when a run begins, a line each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/environment.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// Before the run folder is made: nothing of the run is kept; a folder that holds something else; a
// place where others may replace the folder.
[[nodiscard]] std::vector<std::string> PlaceWarnings(const Flags& flags);

// Of a run with checkpoints under plain mpirun, which ends its ranks a second after the first
// Ctrl-C or SIGTERM, before a long update is saved. Empty: there is time, or nothing to save.
[[nodiscard]] std::string LauncherWarning(const Environment& environment, std::int64_t ranks,
                                          const Flags& flags);

// A warm-up longer than the run, and a learning rate that is 0 in single precision from beginning
// to end.
[[nodiscard]] std::vector<std::string> ScheduleWarnings(const Job& job, double lr_factor,
                                                        std::int64_t updates);

// The learning rate of a run.
struct RunSchedule {
  const Job& job;
  double lr_factor = 1;
  std::int64_t updates = 0;
};
// Of a run that resumes after `step` updates with another number of updates: its learning rate
// continues at another value than it would have, or at its end. Empty: it does not.
[[nodiscard]] std::string LearningRateJump(const RunSchedule& saved, const RunSchedule& now,
                                           std::int64_t step);

// ScheduleWarnings() for `gaccd plan`, which opens no data: of max_updates and synthetic data.
[[nodiscard]] std::vector<std::string> ScheduleWarnings(const Job& job, const Plan& plan);

}  // namespace gaccd
