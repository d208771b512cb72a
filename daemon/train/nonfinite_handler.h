// NonfiniteHandler: what becomes of an update whose loss or gradient is not finite: the run stops,
// or the update is skipped, or repeated without the micro-batches that made it so.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/flags_spec.h"
#include "daemon/engine/engine.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/train/batch_feed.h"
#include "daemon/train/in_flight.h"
#include "daemon/train/loss_scale.h"
#include "daemon/train/nonfinite.h"
#include "daemon/train/phase_notes.h"

namespace gaccd {

// All of it outlives the handler.
struct NonfiniteContext {
  Communicator& comm;
  Engine& engine;
  const FlatLayout& layout;
  BatchFeed& feed;
  const PhaseNotes& notes;
  std::span<const double> control_words;
  LossScale* loss_scale;  // null: not fp16
};

class NonfiniteHandler {
 public:
  // So many updates may be left out in a row: such a training does not come back by itself.
  static constexpr std::int64_t kMostInARow = 10;

  NonfiniteHandler(const NonfiniteContext& context, OnNonfinite policy, double clip_norm)
      : c_(context), policy_(policy), clip_norm_(clip_norm) {}

  // `error` of an update, with the offenders when it was not finite (kNoRequeue). Collective then.
  Status Explain(const UpdateInFlight& done, Status error);
  // Of every result that is no error. Collective when it is not finite: OK to go on without the
  // update, or with what was left of it in `result`; kNoRequeue when the training diverged. In fp16
  // a gradient that is not finite, of a loss that is, has overflowed: the update is skipped
  // whatever the policy. The loss scale follows every update.
  Status Settle(const UpdateInFlight& done, UpdateResult* result);

 private:
  Status UpdateLossScale(const UpdateInFlight& done, const UpdateResult& result);
  Result<SharedOffenders> FindTogether(const UpdateInFlight& done, std::vector<Offender>* mine);
  Result<UpdateResult> RepeatWithout(const UpdateInFlight& done, const std::vector<Offender>& mine,
                                     std::int64_t samples);

  NonfiniteContext c_;
  OnNonfinite policy_;
  double clip_norm_;
  std::int64_t in_a_row_ = 0;
};

}  // namespace gaccd
