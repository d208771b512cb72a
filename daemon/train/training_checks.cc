#include "daemon/train/training_checks.h"

#include <ranges>
#include <set>

#include "collectives/base/strings.h"
#include "daemon/eval/evaluator.h"
#include "daemon/optim/schedule.h"
#include "daemon/train/batch_feed.h"
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

namespace {

// Over all ranks.
std::set<std::int64_t> MicroBatchSizes(const Plan& plan) {
  std::set<std::int64_t> sizes;
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    sizes.merge(plan.MicroBatchSizes(rank));
  }
  return sizes;
}

Status CheckMicroBatches(const Plan& plan, std::string_view where, std::string_view remedy) {
  if (!MicroBatchSizes(plan).contains(1)) return Status::Ok();
  return {
      ErrorKind::kConfig,
      StrCat("batch_norm: one value of a channel has no variance: with stats MICRO expected at "
             "least 2 samples in every micro-batch, found 1 in ",
             where, " on ", plan.world(), " ranks: choose another target or micro-batch", remedy)};
}

Status CheckRuns(const Model& model, std::int64_t samples, std::string_view where,
                 std::string_view remedy) {
  for (const nn::RunningUpdate& running : model.running_statistics()) {
    if (running.run_size == 0 || running.values != 1 || samples % running.run_size != 1) continue;
    return {ErrorKind::kConfig,
            StrCat("batch_norm: one value of a channel has no variance: with stats GHOST and "
                   "ghost_size ",
                   running.run_size, " the last samples of ", where,
                   " are 1, expected at least 2: choose another target or ghost_size", remedy)};
  }
  return Status::Ok();
}

}  // namespace

Status CheckBatchStatistics(const Model& model, const Plan& plan, const UpdateSchedule& schedule) {
  GACCD_ASSIGN_OR_RETURN(const auto plans, PlansBySize(plan, schedule));
  for (const auto& [samples, own] : std::views::reverse(plans)) {
    const bool smaller = schedule.IsSmaller(samples);
    const std::string where = StrCat(smaller ? "the smaller update of " : "updates of ", samples);
    const std::string_view remedy = smaller ? ", or --last-cycle=drop" : "";
    GACCD_RETURN_IF_ERROR(CheckRuns(model, samples, where, remedy));
    if (model.micro_values() != 1) continue;
    GACCD_RETURN_IF_ERROR(CheckMicroBatches(own, where, remedy));
  }
  return Status::Ok();
}

std::string UpdateSumsText(const Model& model) {
  bool whole = false;
  std::set<std::int64_t> runs;
  for (const nn::RunningUpdate& running : model.running_statistics()) {
    whole |= running.sums != nn::kNoValue && running.run_size == 0;
    if (running.run_size > 0) runs.insert(running.run_size);
  }
  std::string text = whole ? "of the whole update" : "";
  for (const std::int64_t size : runs) {
    text += StrCat(text.empty() ? "of every " : ", of every ", size, " samples in a row");
  }
  return text;
}

std::string MicroBatchesText(const Plan& plan) {
  const std::set<std::int64_t> sizes = MicroBatchSizes(plan);
  std::string text = StrCat("of ", *sizes.begin());
  if (sizes.size() > 1) text += StrCat(sizes.size() > 2 ? " to " : " or ", *sizes.rbegin());
  return text + (*sizes.rbegin() == 1 ? " sample" : " samples");
}

}  // namespace gaccd
