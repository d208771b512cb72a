#include "daemon/train/training_checks.h"

#include "collectives/base/strings.h"
#include "daemon/eval/evaluator.h"
#include "daemon/optim/schedule.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/batch_statistics.h"
#include "daemon/train/rank_times.h"

namespace gaccd {
namespace {

// A single sample has no others to compare with: its contrastive loss is 0, as is a variance over
// one value of it.
Status CheckTwoSamples(std::string_view what, const UpdateSchedule& schedule) {
  if (schedule.sizes().front() != 1) return Status::Ok();
  const bool always = !schedule.IsSmaller(1);
  return {ErrorKind::kConfig,
          StrCat(what, ": expected at least 2 samples in every update, found 1 in ",
                 always ? "some of them: choose a larger target"
                        : "the last one of an epoch or of the run: choose another target, or "
                          "--last-cycle=drop")};
}

Status CheckNoiseScale(const Job& job, const Model& model) {
  if (job.noise_scale_every == 0) return Status::Ok();
  if (model.contrastive()) return NoiseScaleUnsupported(job, "a contrastive loss");
  if (model.micro_values() > 0) {
    return NoiseScaleUnsupported(job, "batch norms with stats MICRO");
  }
  if (job.pipeline.stages > 1) return NoiseScaleUnsupported(job, "a pipeline");
  return job.device == Device::kCuda ? NoiseScaleUnsupported(job, "cuda") : Status::Ok();
}

Status CheckDroppedMicroBatches(const Job& job, const Model& model) {
  if (model.update_sums() > 0) {
    return {ErrorKind::kConfig,
            "on_nonfinite: drop-micro-batch is not supported with statistics of the whole update, "
            "which contain every micro-batch: expected stop or skip-update"};
  }
  if (job.pipeline.stages == 1) return Status::Ok();
  return {ErrorKind::kConfig,
          "on_nonfinite: drop-micro-batch is not supported in a pipeline, whose stages do not know "
          "which micro-batch another one drops: expected stop or skip-update"};
}

}  // namespace

Status CheckOtherLoads(const Job& job, const Model& model, const Plan& plan) {
  const auto refuse = [](const std::string& why) -> Status {
    return {ErrorKind::kConfig, "--rebalance=auto and --speed=measured: " + why};
  };
  if (job.pipeline.stages > 1) {
    return {ErrorKind::kConfig,
            "pipeline: loads by measured speeds and --rebalance are not supported with it yet"};
  }
  if (plan.any_split()) return refuse("--bits=any-split has the same micro-batches on any ranks");
  if (job.batch.target_schedule) {
    return {
        ErrorKind::kConfig,
        "batch.target_schedule: loads by measured speeds and --rebalance are not supported with "
        "it yet"};
  }
  if (plan.world() == 1 || plan.world() > RankTimes::kMaxRanks) {
    return refuse(StrCat("expected 2 to ", RankTimes::kMaxRanks, " ranks, found ", plan.world()));
  }
  if (!CanMeasureSpeeds(job, model)) {
    return refuse("the micro-steps of this model wait for other ranks, so their times say nothing");
  }
  if (model.micro_values() > 0) {
    return refuse("other loads change the micro-batches, whose statistics batch_norm has (MICRO)");
  }
  const std::int64_t micro_batch = plan.request().micro_batch;
  if (micro_batch <= BatchFeed::kMaxPreparedSizes) return Status::Ok();
  return refuse(StrCat("every size of a micro-batch is prepared, expected at most ",
                       BatchFeed::kMaxPreparedSizes, " samples, found ", micro_batch));
}

Status CheckAnySplit(const Job& job, const Model& model, const Plan& plan) {
  if (!plan.any_split()) return Status::Ok();
  const auto refuse = [](std::string_view found) -> Status {
    return {ErrorKind::kConfig, StrCat("--bits=any-split: ", found, " not supported with it yet")};
  };
  if (job.device == Device::kCuda) return refuse("GPUs (device: CUDA) are");
  if (job.shard != Sharding::kNone) return refuse("a sharded optimiser is");
  if (model.contrastive()) return refuse("a contrastive loss is");
  if (model.has_collectives()) return refuse("collective operations in a model are");
  if (job.noise_scale_every > 0) return refuse("noise_scale_every is");
  return Status::Ok();
}

Status CheckTraining(const Job& job, const Model& model, const Plan& plan,
                     const UpdateSchedule& schedule, const Dataset* eval) {
  GACCD_RETURN_IF_ERROR(CheckSchedule(job.schedule));
  if (model.contrastive()) GACCD_RETURN_IF_ERROR(CheckTwoSamples("contrastive", schedule));
  if (model.normalised_values() == 1) {
    GACCD_RETURN_IF_ERROR(CheckTwoSamples("batch_norm of one value per channel", schedule));
  }
  GACCD_RETURN_IF_ERROR(CheckAnySplit(job, model, plan));
  GACCD_RETURN_IF_ERROR(CheckBatchStatistics(model, plan, schedule));
  if (eval != nullptr) GACCD_RETURN_IF_ERROR(FindBetter(job, eval->spec()).status());
  return CheckNoiseScale(job, model);
}

Status CheckTrainingFlags(const Job& job, const Model& model, const Plan& plan,
                          const TrainGuards& guards, const LoadChanges& loads) {
  if (guards.on_nonfinite == OnNonfinite::kDropMicroBatch) {
    GACCD_RETURN_IF_ERROR(CheckDroppedMicroBatches(job, model));
  }
  return loads.any() ? CheckOtherLoads(job, model, plan) : Status::Ok();
}

bool CanMeasureSpeeds(const Job& job, const Model& model) {
  return !model.has_collectives() && !model.contrastive() && model.update_sums() == 0 &&
         job.pipeline.stages == 1;
}

Status NoiseScaleUnsupported(const Job& job, std::string_view found) {
  return {ErrorKind::kConfig,
          StrCat("noise_scale_every: ", job.noise_scale_every,
                 " needs the gradient of every rank before the reduction, as a sum over its "
                 "samples: expected CPUs, no pipeline, no contrastive loss and no statistics of "
                 "micro-batches, found ",
                 found)};
}

}  // namespace gaccd
