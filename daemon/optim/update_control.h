// UpdateControl: the values that the engine and the device exchange in one update, in device
// memory, so that the host does not wait for a GPU inside an update. Each field has one writer:
//   engine, before the first micro-step   inputs
//   end of every micro-step               sums (summed over the ranks in the reduction)
//   DecideUpdate()                        decision, which the optimiser follows
//   optimiser                             parameters_not_finite, read by the next decision
// Plain data, the same on host and device. Control words that are summed over the ranks follow it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "daemon/tensor/host_device.h"

namespace gaccd {

// Factors on the gradient of an update, shared by CPUs and GPUs.
[[nodiscard]] GACCD_HOST_DEVICE inline bool IsFinite(double x) { return x - x == 0; }

// The clip factor: min(1, clip_norm / norm); 1 if clip_norm is 0 (no clipping).
// torch.nn.utils.clip_grad_norm_ divides by (norm + 1e-6) instead, which makes a clipped gradient
// shorter by the relative amount 1e-6 / norm; here its norm is exactly clip_norm. REQUIRES: norm is
// finite.
[[nodiscard]] GACCD_HOST_DEVICE inline double ClipFactor(double norm, double clip_norm) {
  return clip_norm <= 0 || norm <= clip_norm ? 1 : clip_norm / norm;
}

// The factor that turns an accumulated gradient, in which a prediction weighs 1 / planned, into the
// gradient of a mean over `divisor`. 1 if there is no such mean: divisor <= 0 or NaN.
[[nodiscard]] GACCD_HOST_DEVICE inline double DivisorCorrection(double planned, double divisor) {
  return divisor > 0 ? planned / divisor : 1;
}

// The maximum number of parameter groups.
inline constexpr int kMaxOptimizerGroups = 64;

// Large enough for the factors of any rule.
struct GroupFactors {
  float values[12];
};

struct UpdateInputs {
  double clip_norm = 0;        // 0: no clipping
  double effective_batch = 0;  // over all ranks
  double planned_divisor = 0;  // 1 / prediction_weight
  std::int64_t update = 0;     // number of the update since the start
  // Factors of the optimiser's rule per group; gradient_scale is ignored, the decision has it.
  GroupFactors factors[kMaxOptimizerGroups]{};
  // loss scale / N, N: number of predictions of the planned samples
  float prediction_weight = 0;
  float average_rate = 0;                  // AverageRate() of this update; 0 without averages
  std::int32_t continue_if_nonfinite = 0;  // 1: training continues after a non-finite update
  std::int32_t measure_noise = 0;          // 1: the reduction also sums the squares of the ranks
};

// Doubles, as one reduction covers all of them: counts are exact up to 2^53.
struct UpdateSums {
  double loss = 0;     // unweighted sum over predictions
  double divisor = 0;  // D: number of counted predictions, or the sum of their weights
  double samples = 0;  // counted where they are computed
  // If inputs.measure_noise: |accumulated gradient|^2 / samples of a rank, and 1 for each rank that
  // has samples (engine/noise_scale.h).
  double squares_per_sample = 0;
  double ranks = 0;
};

struct UpdateDecision {
  double norm = 0;           // of the reduced gradient of the mean over D, before clipping
  double correction = 1;     // N/D divided by the loss scale
  float gradient_scale = 1;  // correction times the clip factor
  std::int32_t finite = 1;   // loss and gradient of this update are finite, and D > 0
  std::int32_t counted = 1;  // sums.samples == inputs.effective_batch
  // Sticky: 1 from the first update on that has a wrong sample count, or is not finite while
  // inputs.continue_if_nonfinite is 0. Later updates change nothing, so the parameters stay those
  // before it.
  std::int32_t stopped = 0;
  std::int32_t idle = 0;  // stopped or not finite: the optimiser changes nothing
};

struct UpdateControl {
  UpdateDecision decision;
  // Sticky: 1 from the first update on that made a parameter non-finite. No later update is finite
  // then. The loss alone may not show it: the ReLU of a matrix product can turn NaN into 0.
  std::int32_t parameters_not_finite = 0;
  UpdateInputs inputs;
  UpdateSums sums;  // last, so that one reduction covers it and the words after it
};
static_assert(offsetof(UpdateControl, sums) + sizeof(UpdateSums) == sizeof(UpdateControl));
static_assert(std::is_trivially_copyable_v<UpdateControl>);

// The decision on an update, the same on every device, from its inputs, its sums over all ranks and
// the sum of squares of its reduced gradient, which is finite exactly if all values are.
GACCD_HOST_DEVICE inline void DecideUpdate(double squares, UpdateControl* control) {
  const UpdateInputs& inputs = control->inputs;
  const UpdateSums& sums = control->sums;
  UpdateDecision& decision = control->decision;
  const bool finite = IsFinite(squares) && IsFinite(sums.loss / sums.divisor) && sums.divisor > 0 &&
                      IsFinite(sums.divisor) && control->parameters_not_finite == 0;
  const bool counted = sums.samples == inputs.effective_batch;
  decision.correction = DivisorCorrection(inputs.planned_divisor, sums.divisor);
  decision.norm = sqrt(squares) * decision.correction;
  const double clip = finite ? ClipFactor(decision.norm, inputs.clip_norm) : 1.0;
  decision.gradient_scale = static_cast<float>(decision.correction * clip);
  decision.finite = finite ? 1 : 0;
  decision.counted = counted ? 1 : 0;
  if (!counted || (!finite && inputs.continue_if_nonfinite == 0)) decision.stopped = 1;
  decision.idle = !finite || decision.stopped != 0 ? 1 : 0;
}

}  // namespace gaccd
