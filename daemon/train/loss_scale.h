// LossScale: the loss scale of fp16 training, which prevents small gradients from becoming 0. Uses
// the rule of torch.amp.GradScaler: halved after a non-finite update, which is skipped; doubled
// after growth_interval consecutive finite updates. The same on all ranks, as finiteness is
// determined after the reduction.
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
  // Call after each update. kNoRequeue if the scale falls below least_scale.
  Status Update(bool finite);

  [[nodiscard]] double scale() const { return state_.scale; }  // for the next update
  // For checkpoints. Always in the same memory.
  [[nodiscard]] const LossScaleState& state() const { return state_; }

 private:
  LossScaleSpec rules_;
  LossScaleState state_;
};

}  // namespace gaccd
