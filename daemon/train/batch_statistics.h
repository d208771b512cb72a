// The groups of samples that the batch norms of a model normalise together under a plan: a check
// that each has a variance, and text for the plan.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/data/update_schedule.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

// kConfig if the model normalises a group (a micro-batch or a run of samples) with only one value
// per channel, in any update on any rank. This is the condition of PyTorch's error "Expected more
// than 1 value per channel", checked before training.
Status CheckBatchStatistics(const Model& model, const Plan& plan, const UpdateSchedule& schedule);

// "of the whole update", "of every 32 samples in a row": the groups that are summed over the ranks.
// Empty: none.
[[nodiscard]] std::string UpdateSumsText(const Model& model);

// "of 6 or 7 samples": the micro-batch sizes of full updates.
[[nodiscard]] std::string MicroBatchesText(const Plan& plan);

}  // namespace gaccd
