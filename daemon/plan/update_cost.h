// The predicted time of an update, relative to one micro-step without recomputation:
//   time(k) = (n (F + G) + k 16 P R) / (n F + 16 P R)
// n: samples of the busiest rank, F: floating-point operations per sample, G: those of recomputed
// blocks (Recompute::kBlocks), else 0, P: parameters, k: micro-steps. A micro-step reads the
// weights twice (forward and backward) and reads and writes the gradients: 16 bytes per parameter.
// R: operations that the device does in the time of one byte, about 10 for a CPU core with AVX2.
// The model compares numbers of micro-steps, not devices.
#pragma once

#include <cstdint>

#include "daemon/plan/plan.h"

namespace gaccd {

struct UpdateCost {
  double flops_per_sample = 0;             // F
  double recomputed_flops_per_sample = 0;  // G
  std::int64_t parameters = 0;             // P
};

// time(plan.accum_steps()); 1 if the cost is not known.
[[nodiscard]] double RelativeTime(const Plan& plan, const UpdateCost& cost);

}  // namespace gaccd
