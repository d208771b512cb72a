// Which samples the batch norms of a model normalise together under a plan: whether that has a
// variance, and what the plan says of it.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "daemon/data/update_schedule.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

// kConfig where an update of the schedule would have a micro-batch, on any rank, or a run of
// samples with one value of a channel, and the model normalises these by themselves: PyTorch's
// "Expected more than 1 value per channel", before anything is trained.
Status CheckBatchStatistics(const Model& model, const Plan& plan, const UpdateSchedule& schedule);

// "of the whole update", "of every 32 samples in a row": what is summed over the ranks. Empty:
// there is nothing.
[[nodiscard]] std::string UpdateSumsText(const Model& model);

// "of 6 or 7 samples": the micro-batches of whole updates.
[[nodiscard]] std::string MicroBatchesText(const Plan& plan);

}  // namespace gaccd
