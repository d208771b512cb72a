// The time of an update, predicted relative to that of one micro-step in which nothing is computed
// again:
//   time(k) = (n (F + G) + k 16 P R) / (n F + 16 P R)
// n: samples of the busiest rank, F: floating-point operations of one, G: those of its blocks that
// are computed again (Recompute::kBlocks), else 0, P: parameters, k: micro-steps. A micro-step by
// itself reads the weights twice (forward and backward) and reads and writes the gradients: 16
// bytes a parameter. R: operations that the device does in the time of one byte, a CPU core with
// AVX2 about 10. It says what many small micro-steps cost, not which device is fast.
#pragma once

#include <cstdint>

#include "daemon/plan/plan.h"

namespace gaccd {

struct UpdateCost {
  double flops_per_sample = 0;             // F
  double recomputed_flops_per_sample = 0;  // G
  std::int64_t parameters = 0;             // P
};

// time(plan.accum_steps()); 1 where nothing is known of the cost.
[[nodiscard]] double RelativeTime(const Plan& plan, const UpdateCost& cost);

}  // namespace gaccd
