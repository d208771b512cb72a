// UpdateControl: the values that the engine and the device exchange in one update, in the memory of
// the device, so that the host need not wait for a GPU inside an update. One writer a field:
//   engine, before the first micro-step   inputs
//   end of every micro-step               sums (summed over the ranks in the reduction)
//   JudgeUpdate()                         verdict: the optimiser obeys it
//   optimiser kernels                     overflowed: the next verdict tells
// Plain data, the same on host and device. Other values that are summed over the ranks follow it.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "daemon/optim/update_math.h"

namespace gaccd {

// Different groups of parameters, at most.
inline constexpr int kMaxOptimizerGroups = 64;

// Room for the factors of any rule.
struct GroupFactors {
  float values[12];
};

struct UpdateInputs {
  double clip_norm = 0;        // 0 = do not clip
  double effective_batch = 0;  // of all ranks
  double planned_divisor = 0;  // 1 / prediction_weight
  std::int64_t update = 0;     // its number since the start
  // Factors of the optimiser's rule for every group; gradient_scale is ignored: the verdict has it.
  GroupFactors factors[kMaxOptimizerGroups]{};
  float prediction_weight = 0;     // loss scale / N, N: the predictions of these samples
  float average_rate = 0;          // AverageRate() of this update; 0 where there is no average
  std::int32_t outlive = 0;        // 1: after an update that is not finite the next one continues
  std::int32_t measure_noise = 0;  // 1: the reduction sums the squares of the ranks, too
};

// Doubles, because one reduction carries both: counts are exact up to 2^53.
struct UpdateSums {
  double loss = 0;     // sum over predictions, not weighted
  double divisor = 0;  // D: predictions that count, or the sum of their weights
  double samples = 0;  // counted where they are computed
  // Where inputs.measure_noise: |the accumulated gradient|^2 / samples of a rank, and 1 for each
  // rank that has samples (engine/noise_scale.h).
  double squares_per_sample = 0;
  double ranks = 0;
};

struct UpdateVerdict {
  double norm = 0;           // of the reduced gradient of the mean over D, before clipping
  double correction = 1;     // N/D, over the loss scale
  float gradient_scale = 1;  // the same, times the clip factor
  std::int32_t finite = 1;   // loss and gradient of this update, and D > 0
  std::int32_t counted = 1;  // sums.samples == inputs.effective_batch
  // Sticky: 1 from the first update on that was not counted right, or not finite and not to be
  // outlived. Nothing is changed any more, so the parameters stay those of the update before.
  std::int32_t stopped = 0;
  std::int32_t idle = 0;  // stopped or not finite: the optimiser changes nothing
};

struct UpdateControl {
  UpdateVerdict verdict;
  // Sticky: 1 from the first update on that left a parameter which is not finite. No later update
  // is finite then. The loss alone would not show it: the ReLU of a product may turn NaN into 0.
  std::int32_t overflowed = 0;
  UpdateInputs inputs;
  UpdateSums sums;  // the last, so that one reduction can cover what follows it
};
static_assert(offsetof(UpdateControl, sums) + sizeof(UpdateSums) == sizeof(UpdateControl));
static_assert(std::is_trivially_copyable_v<UpdateControl>);

// The verdict about an update on every device, from its inputs, its sums over all ranks and the sum
// of squares of its reduced gradient, which is finite exactly when all values are.
GACCD_HOST_DEVICE inline void JudgeUpdate(double squares, UpdateControl* control) {
  const UpdateInputs& inputs = control->inputs;
  const UpdateSums& sums = control->sums;
  UpdateVerdict& verdict = control->verdict;
  const bool finite = IsFinite(squares) && IsFinite(sums.loss / sums.divisor) && sums.divisor > 0 &&
                      IsFinite(sums.divisor) && control->overflowed == 0;
  const bool counted = sums.samples == inputs.effective_batch;
  verdict.correction = DivisorCorrection(inputs.planned_divisor, sums.divisor);
  verdict.norm = sqrt(squares) * verdict.correction;
  const double clip = finite ? ClipFactor(verdict.norm, inputs.clip_norm) : 1.0;
  verdict.gradient_scale = static_cast<float>(verdict.correction * clip);
  verdict.finite = finite ? 1 : 0;
  verdict.counted = counted ? 1 : 0;
  if (!counted || (!finite && inputs.outlive == 0)) verdict.stopped = 1;
  verdict.idle = !finite || verdict.stopped != 0 ? 1 : 0;
}

}  // namespace gaccd
