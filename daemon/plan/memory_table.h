// The micro-batches that --micro-batch=auto looked at, as a table for people.
//
// The time of an update is predicted relative to that of one micro-step:
//   time(k) = (n F + k 16 P R) / (n F + 16 P R)
// n: samples of the busiest rank, F: floating-point operations of one, P: parameters, k:
// micro-steps. A micro-step by itself reads the weights twice (forward and backward) and reads and
// writes the gradients: 16 bytes a parameter. R: operations that the device does in the time of one
// byte, a CPU core with AVX2 about 10. It says what many small micro-steps cost, not which device
// is fast.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/plan/micro_batch.h"

namespace gaccd {

struct UpdateCost {
  double flops_per_sample = 0;  // F
  std::int64_t parameters = 0;  // P
};

// time(plan.accum_steps()); 1 where nothing is known of the cost.
[[nodiscard]] double RelativeTime(const Plan& plan, const UpdateCost& cost);

// Ends with a newline. `limit`: where the limit comes from, "80000.0 MB (--memory)". REQUIRES:
// every plan of the choice has memory().
[[nodiscard]] std::string MemoryTableText(const MicroBatchChoice& choice, const UpdateCost& cost,
                                          std::string_view limit);

}  // namespace gaccd
