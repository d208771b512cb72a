// Warnings about likely mistakes, logged by rank 0 when a run begins, one per line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "collectives/base/environment.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// Warnings before the run folder is created: nothing of the run is kept; the folder contains other
// files; other users could replace the folder.
[[nodiscard]] std::vector<std::string> PlaceWarnings(const Flags& flags);

// Warning for a run with checkpoints under plain mpirun, which kills its ranks within a second of
// the first Ctrl-C or SIGTERM, before a long update is saved. Empty: no such risk.
[[nodiscard]] std::string LauncherWarning(const Environment& environment, std::int64_t ranks,
                                          const Flags& flags);

// Warnings for a warm-up longer than the run, for a learning rate that is always 0 in single
// precision, and for a loss_scale without fp16.
[[nodiscard]] std::vector<std::string> ScheduleWarnings(const Job& job, double lr_factor,
                                                        std::int64_t updates);

// The learning rate of a run.
struct RunSchedule {
  const Job& job;
  double lr_factor = 1;
  std::int64_t updates = 0;
};
// Warning for a run that resumes after `step` updates with a different number of updates: its
// learning rate jumps, or is at its end. Empty: it does not.
[[nodiscard]] std::string LearningRateJump(const RunSchedule& saved, const RunSchedule& now,
                                           std::int64_t step);

// ScheduleWarnings() for `gaccd plan`, which opens no data: for max_updates and synthetic data.
[[nodiscard]] std::vector<std::string> ScheduleWarnings(const Job& job, const Plan& plan);

}  // namespace gaccd
