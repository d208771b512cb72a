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
#pragma once

#include <cstdint>

#include "collectives/base/result.h"
#include "daemon/config/job.h"

namespace gaccd {

struct ScheduleRequest {
  std::int64_t dataset_size = 0;
  std::int64_t batch = 0;
  std::int64_t epochs = 1;
  std::int64_t max_updates = 0;
  LastCycle last_cycle = LastCycle::kUpdate;
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
  // Errors: kConfig for a data set smaller than the batch (with both values), for counts below 1,
  // or when epochs * dataset_size does not fit 63 bits.
  static Result<UpdateSchedule> Make(const ScheduleRequest& request);

  [[nodiscard]] const ScheduleRequest& request() const { return request_; }
  [[nodiscard]] std::int64_t updates() const { return updates_; }  // of the whole run

  // REQUIRES: 0 <= index < updates().
  [[nodiscard]] Update At(std::int64_t index) const;

  // What the updates before it take together; those dropped are not among them.
  // REQUIRES: 0 <= index <= updates().
  [[nodiscard]] std::int64_t SamplesBefore(std::int64_t index) const;

  // The size of the smaller updates of this run; 0 when all have the full batch. There is only
  // one such size, so a run needs at most two plans.
  [[nodiscard]] std::int64_t tail_samples() const { return tail_samples_; }

 private:
  explicit UpdateSchedule(const ScheduleRequest& request) : request_(request) {}
  [[nodiscard]] std::int64_t UpdatesPerEpoch() const;  // not for kCarry

  ScheduleRequest request_;
  std::int64_t updates_ = 0;
  std::int64_t tail_samples_ = 0;
};

// Of a job whose plan takes `batch` samples an update.
Result<UpdateSchedule> ScheduleOf(const Job& job, std::int64_t batch, std::int64_t dataset_size);

}  // namespace gaccd
