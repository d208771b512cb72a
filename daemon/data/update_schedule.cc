#include "daemon/data/update_schedule.h"

#include <algorithm>

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
  if (request.epochs < 0 || request.max_updates < 0) {
    return {ErrorKind::kConfig, StrCat("epochs and max_updates must not be negative, found ",
                                       request.epochs, " and ", request.max_updates)};
  }
  if (request.epochs == 0 && request.max_updates == 0) {
    return {ErrorKind::kConfig, "a run needs epochs or max_updates, found 0 and 0"};
  }
  return Status::Ok();
}

// factor * size run positions must be countable.
Status CheckPositions(std::int64_t factor, std::int64_t size, std::string_view what) {
  std::int64_t product = 0;
  if (!__builtin_mul_overflow(factor, size, &product)) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("the run uses too many samples to count in 63 bits: ", what,
                                     ", ", factor, " x ", size)};
}

}  // namespace

Result<UpdateSchedule> UpdateSchedule::Make(const ScheduleRequest& request) {
  GACCD_RETURN_IF_ERROR(CheckCounts(request));
  const std::int64_t size = request.dataset_size;
  const std::int64_t batch = request.batch;
  const bool carry = request.last_cycle == LastCycle::kCarry;
  UpdateSchedule schedule(request);
  if (request.epochs > 0) {
    GACCD_RETURN_IF_ERROR(CheckPositions(request.epochs, size, "epochs x data set"));
    const std::int64_t total = request.epochs * size;
    schedule.updates_ =
        carry ? total / batch + (total % batch != 0) : request.epochs * schedule.UpdatesPerEpoch();
    const bool whole = request.max_updates == 0 || request.max_updates >= schedule.updates_;
    if (carry && whole) schedule.tail_samples_ = total % batch;
    if (!whole) schedule.updates_ = request.max_updates;
  } else {
    const std::int64_t epochs =
        carry ? 0 : (request.max_updates - 1) / schedule.UpdatesPerEpoch() + 1;
    GACCD_RETURN_IF_ERROR(carry ? CheckPositions(request.max_updates, batch, "max_updates x batch")
                                : CheckPositions(epochs, size, "epochs x data set"));
    schedule.updates_ = request.max_updates;
  }
  if (request.last_cycle == LastCycle::kUpdate && schedule.updates_ >= schedule.UpdatesPerEpoch()) {
    schedule.tail_samples_ = size % batch;
  }
  return schedule;
}

std::int64_t UpdateSchedule::UpdatesPerEpoch() const {
  const std::int64_t full = request_.dataset_size / request_.batch;
  const bool rest = request_.dataset_size % request_.batch != 0;
  return full + (rest && request_.last_cycle == LastCycle::kUpdate);
}

Update UpdateSchedule::At(std::int64_t index) const {
  const std::int64_t size = request_.dataset_size;
  const std::int64_t batch = request_.batch;
  Update update;
  update.index = index;
  if (request_.last_cycle == LastCycle::kCarry) {
    const bool smaller = tail_samples_ > 0 && index == updates_ - 1;
    update.first = index * batch;
    update.samples = smaller ? tail_samples_ : batch;
    update.epoch = update.first / size;
    const std::int64_t left_of_epoch = size - update.first % size;
    update.epoch_end = update.samples >= left_of_epoch;
    update.carried = update.samples > left_of_epoch ? left_of_epoch : 0;
    return update;
  }
  const std::int64_t per_epoch = UpdatesPerEpoch();
  const std::int64_t start = (index % per_epoch) * batch;  // within the epoch
  update.epoch = index / per_epoch;
  update.first = update.epoch * size + start;
  update.samples = std::min(batch, size - start);
  update.epoch_end = (index + 1) % per_epoch == 0;
  update.dropped = update.epoch_end ? size - start - update.samples : 0;
  return update;
}

std::int64_t UpdateSchedule::SamplesBefore(std::int64_t index) const {
  if (index == 0) return 0;
  const Update last = At(index - 1);
  if (request_.last_cycle == LastCycle::kDrop) return index * request_.batch;
  return last.first + last.samples;
}

Result<UpdateSchedule> ScheduleOf(const Job& job, std::int64_t batch, std::int64_t dataset_size) {
  return UpdateSchedule::Make({.dataset_size = dataset_size,
                               .batch = batch,
                               .epochs = job.epochs,
                               .max_updates = job.max_updates,
                               .last_cycle = job.batch.last_cycle});
}

}  // namespace gaccd
