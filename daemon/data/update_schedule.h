// The samples of each update of a run as a range of run positions (see SampleOrder::Fill). Pure
// arithmetic, independent of ranks.
//
// N samples, batch B (the effective batch of the plan), E epochs, R = N mod B:
//   last cycle | updates            | update u consumes
//   update     | E * ceil(N / B)    | B samples; the last of an epoch R, if R > 0
//   drop       | E * floor(N / B)   | B samples; the last R positions of every epoch are not used
//   carry      | ceil(E * N / B)    | run positions [u B, (u + 1) B), also across epochs; only the
//              |                    | last update of the run may be smaller
// max_updates > 0 ends the run earlier; epochs == 0 means as many as max_updates needs.
//
// The batch may change during the run: a stage begins with an update, at the position where the
// previous update ended, and the table applies to the rest of that epoch and to later epochs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// A change of the batch at an update or at a number of samples; exactly one is set. at_samples: the
// first update before which the run has consumed at least so many samples.
struct BatchChange {
  std::optional<std::int64_t> at_update;
  std::optional<std::int64_t> at_samples;
  std::int64_t batch = 0;
};

struct ScheduleRequest {
  std::int64_t dataset_size = 0;
  std::int64_t batch = 0;
  std::int64_t epochs = 1;
  std::int64_t max_updates = 0;
  LastCycle last_cycle = LastCycle::kUpdate;
  std::vector<BatchChange> later = {};  // in order
};

// Consecutive updates with the same batch.
struct BatchStage {
  std::int64_t batch = 0;
  std::int64_t first_update = 0;    // index
  std::int64_t first = 0;           // first run position
  std::int64_t samples_before = 0;  // consumed by previous updates

  bool operator==(const BatchStage&) const = default;
};

struct Update {
  std::int64_t index = 0;    // in the run, from 0
  std::int64_t epoch = 0;    // of its first sample, from 0
  std::int64_t first = 0;    // run position of its first sample
  std::int64_t samples = 0;  // batch, or fewer in a last cycle
  bool epoch_end = false;    // the last update that uses samples of `epoch`
  std::int64_t dropped = 0;  // samples of `epoch` not used after this update (kDrop)
};

class UpdateSchedule {
 public:
  // kConfig for a data set smaller than a batch, invalid counts, neither epochs nor max_updates, a
  // stage that does not begin after the previous one, or epochs * dataset_size that does not fit 63
  // bits.
  static Result<UpdateSchedule> Make(const ScheduleRequest& request);

  [[nodiscard]] const ScheduleRequest& request() const { return request_; }
  [[nodiscard]] std::int64_t updates() const { return updates_; }  // of the whole run

  // The stages that the run reaches; the first begins at update 0.
  [[nodiscard]] std::span<const BatchStage> stages() const { return stages_; }
  // REQUIRES: 0 <= index. The last stage for updates after the end of the run.
  [[nodiscard]] std::size_t StageIndex(std::int64_t index) const;
  [[nodiscard]] const BatchStage& StageAt(std::int64_t index) const {
    return stages_[StageIndex(index)];
  }

  // REQUIRES: 0 <= index < updates().
  [[nodiscard]] Update At(std::int64_t index) const;

  // The number of samples consumed by the updates before `index`, without dropped samples.
  // REQUIRES: 0 <= index <= updates().
  [[nodiscard]] std::int64_t SamplesBefore(std::int64_t index) const;

  // The batches of the stages and the sizes of all smaller updates, ascending: a run needs a plan
  // for each. A stage has at most two sizes of smaller updates.
  [[nodiscard]] const std::vector<std::int64_t>& sizes() const { return sizes_; }
  // Whether `samples`, one of sizes(), is not the batch of any stage.
  [[nodiscard]] bool IsSmaller(std::int64_t samples) const;

 private:
  struct EpochPosition {
    std::int64_t epoch = 0;
    std::int64_t start = 0;  // position within the epoch
  };

  explicit UpdateSchedule(const ScheduleRequest& request)
      : request_(request), stages_{{.batch = request.batch}} {}
  [[nodiscard]] bool carries() const { return request_.last_cycle == LastCycle::kCarry; }
  // The number of updates within `samples` of one epoch. REQUIRES: not kCarry.
  [[nodiscard]] std::int64_t UpdatesIn(std::int64_t samples, std::int64_t batch) const;
  [[nodiscard]] std::int64_t RemainingInEpoch(const BatchStage& stage) const;
  // Where update k of the stage begins (k from 0), if the stage does not end before.
  [[nodiscard]] EpochPosition Begin(const BatchStage& stage, std::int64_t k) const;
  [[nodiscard]] std::int64_t UpdatesUntil(const BatchStage& stage, std::int64_t samples) const;
  // The number of updates of the run if `stage` were the last one.
  [[nodiscard]] std::int64_t EndIfLast(const BatchStage& stage) const;
  Status AddStages();
  void FindSizes();

  ScheduleRequest request_;
  std::vector<BatchStage> stages_;
  std::vector<std::int64_t> sizes_;
  std::int64_t updates_ = 0;
};

// A plan for every size in schedule.sizes(), derived from the plan of one of its batches.
Result<std::map<std::int64_t, Plan>> PlansBySize(const Plan& plan, const UpdateSchedule& schedule);

// The batches of the updates before index `end`, and always the first one: "7, 12 from update 5".
// Counts updates from 1.
[[nodiscard]] std::string BatchesText(const UpdateSchedule& schedule, std::int64_t end);

// The schedule of a job. `plan`: of any stage of its target_schedule, or of its batch.
Result<UpdateSchedule> MakeUpdateSchedule(const Job& job, const Plan& plan,
                                          std::int64_t dataset_size);

}  // namespace gaccd
