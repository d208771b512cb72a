#include "daemon/data/update_schedule.h"

#include <algorithm>
#include <set>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status CheckCounts(const ScheduleRequest& request) {
  if (request.batch < 1) {
    return {ErrorKind::kConfig,
            StrCat("the batch of an update must be at least 1, found ", request.batch)};
  }
  if (request.dataset_size < request.batch) {
    return {ErrorKind::kConfig,
            StrCat("the training data set is smaller than one update: expected at least ",
                   request.batch, " samples (the batch), found ", request.dataset_size)};
  }
  for (std::size_t i = 0; i < request.later.size(); ++i) {
    const std::int64_t batch = request.later[i].batch;
    if (batch >= 1 && batch <= request.dataset_size) continue;
    return {ErrorKind::kConfig,
            StrCat("stage ", i + 2, " of the target schedule: expected a batch from 1 to the ",
                   request.dataset_size, " samples of the training data set, found ", batch)};
  }
  if (request.epochs < 0 || request.max_updates < 0) {
    return {ErrorKind::kConfig, StrCat("epochs and max_updates must not be negative, found ",
                                       request.epochs, " and ", request.max_updates)};
  }
  if (request.epochs == 0 && request.max_updates == 0) {
    return {ErrorKind::kConfig, "a run needs epochs or max_updates, found 0 and 0"};
  }
  return Status::Ok();
}

// factor * size run positions must fit 63 bits.
Status CheckPositions(std::int64_t factor, std::int64_t size, std::string_view what) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(factor, size, &product)) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("the run uses too many samples to count in 63 bits: ", what,
                                     ", ", factor, " x ", size)};
}

}  // namespace

Result<UpdateSchedule> UpdateSchedule::Make(const ScheduleRequest& request) {
  GACCD_RETURN_IF_ERROR(CheckCounts(request));
  UpdateSchedule schedule(request);
  const std::int64_t size = request.dataset_size;
  if (request.epochs > 0) {
    GACCD_RETURN_IF_ERROR(CheckPositions(request.epochs, size, "epochs x data set"));
  } else if (!request.later.empty()) {  // an update advances by at most the size of the data set
    GACCD_RETURN_IF_ERROR(CheckPositions(request.max_updates, size, "max_updates x data set"));
  } else if (schedule.carries()) {
    GACCD_RETURN_IF_ERROR(
        CheckPositions(request.max_updates, request.batch, "max_updates x batch"));
  } else {
    const std::int64_t per_epoch = schedule.UpdatesIn(size, request.batch);
    GACCD_RETURN_IF_ERROR(
        CheckPositions((request.max_updates - 1) / per_epoch + 1, size, "epochs x data set"));
  }
  GACCD_RETURN_IF_ERROR(schedule.AddStages());
  schedule.updates_ = schedule.EndIfLast(schedule.stages_.back());
  schedule.FindSizes();
  return schedule;
}

std::int64_t UpdateSchedule::UpdatesIn(std::int64_t samples, std::int64_t batch) const {
  return request_.last_cycle == LastCycle::kUpdate ? CeilDiv(samples, batch) : samples / batch;
}

std::int64_t UpdateSchedule::RemainingInEpoch(const BatchStage& stage) const {
  return request_.dataset_size - stage.first % request_.dataset_size;
}

UpdateSchedule::EpochPosition UpdateSchedule::Begin(const BatchStage& stage, std::int64_t k) const {
  const std::int64_t size = request_.dataset_size;
  if (carries()) {
    const std::int64_t position = stage.first + k * stage.batch;
    return {position / size, position % size};
  }
  const std::int64_t epoch = stage.first / size;
  const std::int64_t in_first = UpdatesIn(RemainingInEpoch(stage), stage.batch);
  if (k < in_first) return {epoch, stage.first % size + k * stage.batch};
  const std::int64_t per_epoch = UpdatesIn(size, stage.batch);
  return {epoch + 1 + (k - in_first) / per_epoch, (k - in_first) % per_epoch * stage.batch};
}

std::int64_t UpdateSchedule::UpdatesUntil(const BatchStage& stage, std::int64_t samples) const {
  const std::int64_t rest = RemainingInEpoch(stage);
  if (request_.last_cycle != LastCycle::kUpdate || samples <= rest) {
    return CeilDiv(samples, stage.batch);
  }
  const std::int64_t size = request_.dataset_size;
  const std::int64_t more = samples - rest;
  return CeilDiv(rest, stage.batch) + more / size * CeilDiv(size, stage.batch) +
         CeilDiv(more % size, stage.batch);
}

std::int64_t UpdateSchedule::EndIfLast(const BatchStage& stage) const {
  if (request_.epochs == 0) return request_.max_updates;
  const std::int64_t size = request_.dataset_size;
  std::int64_t end = stage.first_update;
  if (carries()) {
    end += CeilDiv(request_.epochs * size - stage.first, stage.batch);
  } else {
    const std::int64_t epochs_after = request_.epochs - 1 - stage.first / size;
    end += UpdatesIn(RemainingInEpoch(stage), stage.batch) +
           epochs_after * UpdatesIn(size, stage.batch);
  }
  return request_.max_updates > 0 ? std::min(end, request_.max_updates) : end;
}

Status UpdateSchedule::AddStages() {
  for (const BatchChange& later : request_.later) {
    const BatchStage& last = stages_.back();
    std::int64_t updates = 0;  // of the last stage
    if (later.at_update) {
      updates = *later.at_update - last.first_update;
    } else if (*later.at_samples > last.samples_before) {
      updates = UpdatesUntil(last, *later.at_samples - last.samples_before);
    }
    if (updates < 1) {
      return {ErrorKind::kConfig,
              StrCat("stage ", stages_.size() + 1, " of the target schedule, at ",
                     later.at_update ? StrCat("update ", *later.at_update)
                                     : StrCat(*later.at_samples, " samples"),
                     ": expected it to begin after stage ", stages_.size(), ", at update ",
                     last.first_update, " with ", last.samples_before, " samples taken")};
    }
    const std::int64_t more = EndIfLast(last) - last.first_update - updates;
    if (more < 0) break;  // the run does not reach it
    // The rest of the epoch may suffice for the new batch, so nothing is dropped here.
    const EpochPosition end = Begin(last, updates - 1);
    const Update before = At(last.first_update + updates - 1);
    const std::int64_t first = end.epoch * request_.dataset_size + end.start + before.samples;
    const BatchStage stage{.batch = later.batch,
                           .first_update = last.first_update + updates,
                           .first = first,
                           .samples_before = SamplesBefore(last.first_update + updates)};
    // A smaller batch may use the rest of the last epoch; a larger one may drop it.
    if (more == 0 && EndIfLast(stage) == stage.first_update) break;
    stages_.push_back(stage);
  }
  return Status::Ok();
}

void UpdateSchedule::FindSizes() {
  std::set<std::int64_t> sizes;
  const std::int64_t size = request_.dataset_size;
  for (std::size_t i = 0; i < stages_.size(); ++i) {
    const BatchStage& stage = stages_[i];
    const std::int64_t end = i + 1 < stages_.size() ? stages_[i + 1].first_update : updates_;
    const std::int64_t updates = end - stage.first_update;
    if (updates > 0) sizes.insert(stage.batch);
    if (request_.last_cycle != LastCycle::kUpdate) continue;
    const std::int64_t rest = RemainingInEpoch(stage);
    const std::int64_t in_first = CeilDiv(rest, stage.batch);
    if (updates >= in_first) sizes.insert(rest % stage.batch);
    if (updates >= in_first + CeilDiv(size, stage.batch)) sizes.insert(size % stage.batch);
  }
  if (carries()) sizes.insert(At(updates_ - 1).samples);
  sizes.erase(0);
  sizes_.assign(sizes.begin(), sizes.end());
}

std::size_t UpdateSchedule::StageIndex(std::int64_t index) const {
  const auto after = std::ranges::upper_bound(stages_, index, {}, &BatchStage::first_update);
  return static_cast<std::size_t>(after - stages_.begin()) - 1;
}

Update UpdateSchedule::At(std::int64_t index) const {
  const std::int64_t size = request_.dataset_size;
  const BatchStage& stage = StageAt(index);
  const EpochPosition begin = Begin(stage, index - stage.first_update);
  const std::int64_t left_of_epoch = size - begin.start;
  Update update{.index = index,
                .epoch = begin.epoch,
                .first = begin.epoch * size + begin.start,
                .samples = stage.batch};
  if (carries()) {
    if (request_.epochs > 0) {
      update.samples = std::min(stage.batch, request_.epochs * size - update.first);
    }
    update.epoch_end = update.samples >= left_of_epoch;
    return update;
  }
  update.samples = std::min(stage.batch, left_of_epoch);
  const BatchStage& next = StageAt(index + 1);
  update.epoch_end = Begin(next, index + 1 - next.first_update).epoch > begin.epoch;
  update.dropped = update.epoch_end ? left_of_epoch - update.samples : 0;
  return update;
}

std::int64_t UpdateSchedule::SamplesBefore(std::int64_t index) const {
  if (index == 0) return 0;
  if (request_.last_cycle == LastCycle::kDrop) {
    const BatchStage& stage = StageAt(index - 1);
    return stage.samples_before + (index - stage.first_update) * stage.batch;
  }
  const Update last = At(index - 1);
  return last.first + last.samples;
}

bool UpdateSchedule::IsSmaller(std::int64_t samples) const {
  return std::ranges::find(stages_, samples, &BatchStage::batch) == stages_.end();
}

std::string BatchesText(const UpdateSchedule& schedule, std::int64_t end) {
  std::string text;
  for (const BatchStage& stage : schedule.stages()) {
    if (stage.first_update == 0) {
      text = StrCat(stage.batch);
    } else if (stage.first_update < end) {
      text += StrCat(", ", stage.batch, " from update ", stage.first_update + 1);
    }
  }
  return text;
}

Result<UpdateSchedule> MakeUpdateSchedule(const Job& job, const Plan& plan,
                                          std::int64_t dataset_size) {
  ScheduleRequest request{.dataset_size = dataset_size,
                          .batch = plan.effective_batch(),
                          .epochs = job.epochs,
                          .max_updates = job.max_updates,
                          .last_cycle = job.batch.last_cycle};
  if (!job.batch.target_schedule) return UpdateSchedule::Make(request);
  const std::vector<TargetStageSpec>& stages = job.batch.target_schedule->stage;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    GACCD_ASSIGN_OR_RETURN(const Plan own, plan.ForTarget(stages[i].target));
    if (i == 0) {
      request.batch = own.effective_batch();
    } else {
      request.later.push_back({stages[i].at_update, stages[i].at_samples, own.effective_batch()});
    }
  }
  return UpdateSchedule::Make(request);
}

Result<std::map<std::int64_t, Plan>> PlansBySize(const Plan& plan, const UpdateSchedule& schedule) {
  std::map<std::int64_t, Plan> plans;
  for (const std::int64_t samples : schedule.sizes()) {
    GACCD_ASSIGN_OR_RETURN(const Plan own, samples == plan.effective_batch()
                                               ? Result<Plan>(plan)
                                               : plan.ForSamples(samples));
    plans.emplace(samples, own);
  }
  return plans;
}

}  // namespace gaccd
