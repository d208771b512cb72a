// Checks of a training that need neither ranks, a device nor the values of its data. Called by
// training and by `gaccd plan`, which therefore refuses the same jobs.
#pragma once

#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/data/dataset.h"
#include "daemon/data/update_schedule.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"
#include "daemon/train/training.h"

namespace gaccd {

// kConfig if an update has too few samples for the loss or a batch norm, if the evaluation has no
// evaluation.metric, or if the model or the job's device does not support noise_scale_every. model:
// whole, or a stage. eval: null if the job has no evaluation data.
[[nodiscard]] Status CheckTraining(const Job& job, const Model& model, const Plan& plan,
                                   const UpdateSchedule& schedule, const Dataset* eval);

// kConfig if the plan has Bits::kAnySplit, which the job or the model does not support.
[[nodiscard]] Status CheckAnySplit(const Job& job, const Model& model, const Plan& plan);

// kConfig if the model or the plan does not support these flags. model: whole, or a stage.
[[nodiscard]] Status CheckTrainingFlags(const Job& job, const Model& model, const Plan& plan,
                                        const TrainGuards& guards, const LoadChanges& loads);

// kConfig if the loads cannot change during the run (--rebalance=auto, --speed=measured). model:
// whole, or a stage.
[[nodiscard]] Status CheckOtherLoads(const Job& job, const Model& model, const Plan& plan);

// Whether measured times show speeds: micro-steps of the model wait for no other rank.
[[nodiscard]] bool CanMeasureSpeeds(const Job& job, const Model& model);

// kConfig. found: what does not support noise_scale_every.
[[nodiscard]] Status NoiseScaleUnsupported(const Job& job, std::string_view found);

// The groups of samples that the batch norms of a model normalise together under a plan: a check
// that each has a variance, and text for the plan.

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
