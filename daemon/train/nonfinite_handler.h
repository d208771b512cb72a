// NonfiniteHandler: how to handle an update whose loss or gradient is not finite: the run stops,
// or the update is skipped, or repeated without the micro-batches that made it so.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/flags_spec.h"
#include "daemon/config/job.h"
#include "daemon/engine/engine.h"
#include "daemon/rundir/progress_notifier.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/in_flight.h"
#include "daemon/train/loss_scale.h"
#include "daemon/train/nonfinite.h"

namespace gaccd {

// All of it outlives the handler.
struct NonfiniteContext {
  Communicator& comm;
  Engine& engine;
  const FlatLayout& layout;
  BatchFeed& feed;
  const ProgressNotifier& progress;
  std::span<const double> control_words;
  LossScale* loss_scale;  // null: not fp16
  const Job& job;
};

// No label of the update counts, so it has no loss: it has changed nothing.
[[nodiscard]] inline bool IsUnlabelled(const UpdateResult& result) {
  return !result.finite && result.divisor == 0;
}

class NonfiniteHandler {
 public:
  // The most updates in a row that may be skipped: after more, the training does not recover.
  static constexpr std::int64_t kMaxInARow = 10;

  NonfiniteHandler(const NonfiniteContext& context, OnNonfinite policy)
      : c_(context), policy_(policy) {}

  // `error` of an update, with the offenders when it was not finite (kNoRequeue). Collective then.
  Status Explain(const UpdateInFlight& done, Status error);
  // Of every result that is no error. Collective when it is not finite: OK to continue without the
  // update, or with what was left of it in `result`; kNoRequeue when the training diverged. In fp16
  // a gradient that is not finite, of a loss that is, has overflowed: the update is skipped
  // whatever the policy. So is an update without a label that counts, with a warning. The loss
  // scale follows every other update.
  Status Settle(const UpdateInFlight& done, UpdateResult* result);

 private:
  // kNoRequeue, with what to change.
  [[nodiscard]] Status Diverged(const std::string& why, const SharedOffenders& shared) const;
  void WarnOfUnlabelled(const UpdateInFlight& done);
  Status UpdateLossScale(const UpdateInFlight& done, const UpdateResult& result);
  Result<SharedOffenders> LocateOffenders(const UpdateInFlight& done, std::vector<Offender>* mine);
  Result<UpdateResult> RepeatWithout(const UpdateInFlight& done, const std::vector<Offender>& mine,
                                     std::int64_t samples);

  NonfiniteContext c_;
  OnNonfinite policy_;
  std::int64_t in_a_row_ = 0;
  std::int64_t unlabelled_ = 0;  // updates so far
};

}  // namespace gaccd
