#include "daemon/train/loss_scale.h"

#include <cmath>

#include "collectives/base/strings.h"

namespace gaccd {

Status LossScale::Update(bool finite) {
  if (!finite) {
    state_ = {.scale = state_.scale / 2};
    if (state_.scale >= rules_.least_scale) return Status::Ok();
    return {ErrorKind::kNoRequeue,
            StrCat("training diverged: its gradient is not finite, however small the loss scale: "
                   "expected at least loss_scale.least_scale, ",
                   rules_.least_scale, ", found ", state_.scale,
                   "; precision bf16 has the range of f32")};
  }
  if (++state_.growth_tracker < rules_.growth_interval) return Status::Ok();
  const double grown = state_.scale * 2;
  // As in GradScaler, which stores it in f32.
  if (std::isfinite(static_cast<float>(grown))) state_.scale = grown;
  state_.growth_tracker = 0;
  return Status::Ok();
}

}  // namespace gaccd
