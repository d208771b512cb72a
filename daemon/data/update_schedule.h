// Which samples every update of a run takes, as a range of run positions (see SampleOrder::Fill).
// Pure arithmetic; knows nothing of ranks.
//
// N samples, batch B (the effective batch of the plan), E epochs; R = N mod B samples are left
// over.
//   last cycle | updates            | update u takes
//   update     | E * ceil(N / B)    | B samples; the last of an epoch takes R, when R > 0
//   drop       | E * floor(N / B)   | B samples; the last R positions of every epoch are not used
//   carry      | ceil(E * N / B)    | run positions [u B, (u + 1) B), over the end of an epoch too;
//              |                    | only the last update of the run may be smaller
// max_updates > 0 ends the run earlier; epochs == 0 means as many as max_updates needs.
//
// The batch may change in the run: a stage begins with an update, at the position where the update
// before it ended, and the table holds for what is left of that epoch and for the epochs after it.
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

// A batch that the run does not begin with; one of the first two is given. at_samples: from the
// first update on before which the run has taken at least so many.
struct LaterBatch {
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
  std::vector<LaterBatch> later = {};  // in the order in which they begin
};

// Updates of one batch.
struct BatchStage {
  std::int64_t batch = 0;
  std::int64_t first_update = 0;    // index
  std::int64_t first = 0;           // run position where it begins
  std::int64_t samples_before = 0;  // that the updates before it take

  bool operator==(const BatchStage&) const = default;
};

struct Update {
  std::int64_t index = 0;    // 0, 1, ... in the run
  std::int64_t epoch = 0;    // of its first sample, from 0
  std::int64_t first = 0;    // run position of its first sample
  std::int64_t samples = 0;  // batch, or fewer in a last cycle
  bool epoch_end = false;    // the last update that uses samples of `epoch`
  std::int64_t dropped = 0;  // samples of `epoch` left out after this update (kDrop)
  std::int64_t carried = 0;  // of its samples, those left over from `epoch` and put
                             // together with the first ones of the next (kCarry)
};

class UpdateSchedule {
 public:
  // Errors: kConfig for a data set smaller than a batch (with both values), for counts below 1,
  // for a later batch that does not begin after the one before it, or when epochs * dataset_size
  // does not fit 63 bits.
  static Result<UpdateSchedule> Make(const ScheduleRequest& request);

  [[nodiscard]] const ScheduleRequest& request() const { return request_; }
  [[nodiscard]] std::int64_t updates() const { return updates_; }  // of the whole run

  // Those that the run reaches, the first one at update 0.
  [[nodiscard]] std::span<const BatchStage> stages() const { return stages_; }
  // REQUIRES: 0 <= index. Past the end of the run it is the last one.
  [[nodiscard]] std::size_t StageOf(std::int64_t index) const;
  [[nodiscard]] const BatchStage& StageAt(std::int64_t index) const {
    return stages_[StageOf(index)];
  }

  // REQUIRES: 0 <= index < updates().
  [[nodiscard]] Update At(std::int64_t index) const;

  // What the updates before it take together; those dropped are not among them.
  // REQUIRES: 0 <= index <= updates().
  [[nodiscard]] std::int64_t SamplesBefore(std::int64_t index) const;

  // The batches of the stages and the samples of every smaller update, ascending: a run needs a
  // plan for each. A stage has at most two sizes of smaller updates.
  [[nodiscard]] const std::vector<std::int64_t>& sizes() const { return sizes_; }
  // Of sizes(): no stage has this batch.
  [[nodiscard]] bool IsSmaller(std::int64_t samples) const;

 private:
  struct EpochPosition {
    std::int64_t epoch = 0;
    std::int64_t start = 0;  // within it
  };

  explicit UpdateSchedule(const ScheduleRequest& request)
      : request_(request), stages_{{.batch = request.batch}} {}
  [[nodiscard]] bool carries() const { return request_.last_cycle == LastCycle::kCarry; }
  // Of `batch` samples each; not for kCarry.
  [[nodiscard]] std::int64_t UpdatesIn(std::int64_t samples, std::int64_t batch) const;
  [[nodiscard]] std::int64_t RestOfEpoch(const BatchStage& stage) const;
  // Where the k-th update of a stage that never ends begins, from 0.
  [[nodiscard]] EpochPosition Begin(const BatchStage& stage, std::int64_t k) const;
  [[nodiscard]] std::int64_t UpdatesUntil(const BatchStage& stage, std::int64_t samples) const;
  // As if no other stage came after it.
  [[nodiscard]] std::int64_t EndWith(const BatchStage& stage) const;
  Status AddStages();
  void FindSizes();

  ScheduleRequest request_;
  std::vector<BatchStage> stages_;
  std::vector<std::int64_t> sizes_;
  std::int64_t updates_ = 0;
};

// A plan for every size of an update in the run, from that of one of its batches.
Result<std::map<std::int64_t, Plan>> PlansBySize(const Plan& plan, const UpdateSchedule& schedule);

// The effective batches of its updates before update `end` (index): "7, 12 from update 5". The
// first one is always among them; updates are counted from 1, as for people.
[[nodiscard]] std::string BatchesText(const UpdateSchedule& schedule, std::int64_t end);

// Of a job. `plan`: of any stage of its target_schedule, or of its batch.
Result<UpdateSchedule> ScheduleOf(const Job& job, const Plan& plan, std::int64_t dataset_size);

}  // namespace gaccd
