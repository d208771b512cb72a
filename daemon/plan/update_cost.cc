#include "daemon/plan/update_cost.h"

namespace gaccd {

double RelativeTime(const Plan& plan, const UpdateCost& cost) {
  constexpr double kBytesOfMicroStep = 16;  // per parameter
  constexpr double kOperationsPerByte = 10;
  const auto samples = static_cast<double>(plan.ranks_hi_samples());
  const double once = cost.flops_per_sample * samples;
  const double again = plan.request().recompute == Recompute::kBlocks
                           ? cost.recomputed_flops_per_sample * samples
                           : 0;
  const double step = kBytesOfMicroStep * kOperationsPerByte * static_cast<double>(cost.parameters);
  if (!(once + step > 0)) return 1;
  return (once + again + static_cast<double>(plan.accum_steps()) * step) / (once + step);
}

}  // namespace gaccd
