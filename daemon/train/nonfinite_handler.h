// NonfiniteHandler: handles an update with a non-finite loss or gradient: stops the run, skips the
// update, or repeats it without the offending micro-batches.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/config/flags_spec.h"
#include "daemon/config/job.h"
#include "daemon/engine/engine.h"
#include "daemon/rundir/progress_notifier.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/nonfinite.h"
#include "daemon/train/update.h"

namespace gaccd {

// LossScale: the loss scale of fp16 training, which prevents small gradients from becoming 0. Uses
// the rule of torch.amp.GradScaler: halved after a non-finite update, which is skipped; doubled
// after growth_interval consecutive finite updates. The same on all ranks, as finiteness is
// determined after the reduction.
class LossScale {
 public:
  explicit LossScale(const LossScaleSpec& rules)
      : rules_(rules), state_{.scale = rules.init_scale} {}

  void Restore(const LossScaleState& state) { state_ = state; }
  // Call after each update. kNoRequeue if the scale falls below least_scale.
  Status Update(bool finite);

  [[nodiscard]] double scale() const { return state_.scale; }  // for the next update
  // For checkpoints. Always in the same memory.
  [[nodiscard]] const LossScaleState& state() const { return state_; }

 private:
  LossScaleSpec rules_;
  LossScaleState state_;
};

// All members must outlive the handler.
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

// Whether no label of the update counts, so that it has no loss and has changed nothing.
[[nodiscard]] inline bool IsUnlabelled(const UpdateResult& result) {
  return !result.finite && result.divisor == 0;
}

class NonfiniteHandler {
 public:
  // The maximum number of consecutive skipped updates: after more, the training will not recover.
  static constexpr std::int64_t kMaxInARow = 10;

  NonfiniteHandler(const NonfiniteContext& context, OnNonfinite policy)
      : c_(context), policy_(policy) {}

  // The error of an update; if it was not finite (kNoRequeue), with the offenders; then collective.
  Status Explain(const UpdateInFlight& done, Status error);
  // Call for every successful result. Collective if it is not finite: OK to continue without the
  // update, or with the remaining part of it in `result`; kNoRequeue if the training diverged. In
  // fp16 a non-finite gradient of a finite loss is an overflow: the update is skipped whatever the
  // policy. An update without a counted label is skipped with a warning. The loss scale follows
  // all remaining updates whose loss is finite; GradScaler also halves it after a non-finite loss,
  // which does not depend on the scale.
  Status HandleResult(const UpdateInFlight& done, UpdateResult* result);
  // Collective. kNoRequeue, on all ranks, if an update has made a parameter non-finite: nothing
  // recovers from that. Call before the parameters are evaluated or saved, as otherwise only the
  // next update shows it.
  Status CheckParameters() const;

 private:
  // kNoRequeue, with advice.
  [[nodiscard]] Status Diverged(const std::string& why, const SharedOffenders& shared) const;
  void WarnAboutUnlabelled(const UpdateInFlight& done);
  Status UpdateLossScale(const UpdateInFlight& done, const UpdateResult& result);
  Result<SharedOffenders> LocateOffenders(const UpdateInFlight& done, bool loss_only,
                                          std::vector<Offender>* mine);
  Result<UpdateResult> RepeatWithout(const UpdateInFlight& done, const std::vector<Offender>& mine,
                                     std::int64_t samples);

  NonfiniteContext c_;
  OnNonfinite policy_;
  std::int64_t in_a_row_ = 0;
  std::int64_t unlabelled_ = 0;  // updates so far
};

}  // namespace gaccd
