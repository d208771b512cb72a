// LossScale: what the loss of a training in fp16 is multiplied with, so that small gradients do not
// become 0. The rule is torch.amp.GradScaler's: halved after an update that was not finite, which
// is skipped; doubled after growth_interval updates in a row that were. The same on all ranks, as
// what is finite is known after the reduction.
#pragma once

#include "collectives/base/result.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/config/job.h"

namespace gaccd {

class LossScale {
 public:
  explicit LossScale(const LossScaleSpec& rules)
      : rules_(rules), state_{.scale = rules.init_scale} {}

  void Restore(const LossScaleState& state) { state_ = state; }
  // After an update, finite or not. kNoRequeue when the scale has fallen below least_scale.
  Status Update(bool finite);

  [[nodiscard]] double scale() const { return state_.scale; }  // of the next update
  // For checkpoints. In the same memory always.
  [[nodiscard]] const LossScaleState& state() const { return state_; }

 private:
  LossScaleSpec rules_;
  LossScaleState state_;
};

}  // namespace gaccd
