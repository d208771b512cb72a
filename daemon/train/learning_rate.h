// The learning rate of an update of a job: optim/schedule.h with the batches of a target_schedule.
#pragma once

#include <cstdint>

#include "daemon/config/job.h"
#include "daemon/data/update_schedule.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// The learning rate of update `index` (from 0). The factor of lr_rule follows the batch of the
// update's stage. If the batch changes during the run, cosine and linear depend on the samples
// before the update, not on the number of updates:
//   t = (S(u) - S(w)) / (S(n - 1) - S(w)), S(u): the samples before update u
// If all updates have the same size, both are equal. plan: of any stage.
[[nodiscard]] double JobLearningRate(const Job& job, const Plan& plan,
                                     const UpdateSchedule& schedule, std::int64_t index);

}  // namespace gaccd
