// Chooses the micro-batch by the memory of a rank, for --micro-batch=auto. Pure arithmetic: the
// caller provides the bytes of a plan.
//
// Plans for one batch with the same number k of micro-steps take the same time, and a smaller
// micro-batch needs less memory. So only the smallest is considered, b = ceil(largest load / k): 13
// samples in two micro-steps are 7 + 6, with evaluations of 7, although 10 would also work.
//
// If the job does not set Recompute, it is chosen too: the largest micro-batch that fits without
// recomputation is compared with the largest that fits with it, and the faster update
// wins; without, if both are equal. More micro-steps are cheap and a second forward
// is not, so kBlocks is mostly chosen if nothing else fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// The predicted time of an update, relative to one micro-step without recomputation:
//   time(k) = (n (F + G) + k 16 P R) / (n F + 16 P R)
// n: samples of the busiest rank, F: floating-point operations per sample, G: those of recomputed
// blocks (Recompute::kBlocks), else 0, P: parameters, k: micro-steps. A micro-step reads the
// weights twice (forward and backward) and reads and writes the gradients: 16 bytes per parameter.
// R: operations that the device does in the time of one byte, about 10 for a CPU core with AVX2.
// The model compares numbers of micro-steps, not devices.
struct UpdateCost {
  double flops_per_sample = 0;             // F
  double recomputed_flops_per_sample = 0;  // G
  std::int64_t parameters = 0;             // P
};

// time(plan.accum_steps()); 1 if the cost is not known.
[[nodiscard]] double RelativeTime(const Plan& plan, const UpdateCost& cost);

// `plan` with the smallest micro-batch for its number of micro-steps. Errors: those of
// Plan::Make().
[[nodiscard]] Result<Plan> WithSmallestMicroBatch(const Plan& plan);

// The plan of `request` with one micro-step: every rank holds all its samples at once.
// request.micro_batch is ignored. kConfig for a rounding other than exact, as its batch depends on
// the micro-batch; errors of Plan::Make().
[[nodiscard]] Result<Plan> InOneMicroStep(const PlanRequest& request);

// Returns the memory need of a plan, for the rank with the least memory left. If several ranks
// choose, it is collective and returns the same on all of them.
using FindMemoryNeed = std::function<Result<MemoryNeed>(const Plan& plan)>;

struct MicroBatchChoice {
  // The considered plans, those with kNone before those with kBlocks, in descending order of the
  // micro-batch; all have memory().
  std::vector<Plan> plans;
  std::size_t chosen = 0;  // index in `plans`
  bool fits = false;       // false: no plan fits; the chosen one needs the least memory

  [[nodiscard]] const Plan& plan() const { return plans[chosen]; }
};

struct MicroBatchSearch {
  std::int64_t max_micro_batch = 0;  // 0: no limit
  std::size_t smaller = 0;           // number of additional smaller ones to consider, for display
  // Recompute is not set by the job: kBlocks is considered too, always for display, otherwise only
  // if a single micro-step does not fit without it. REQUIRES: the request has kNone.
  bool recompute = false;
  UpdateCost cost = {};  // for `recompute`
};

// The largest micro-batch that fits in memory, while the next larger one with fewer micro-steps
// does not. Calls `find` for few plans. Memory does not always grow with the micro-batch, as a
// batch norm keeps data per micro-step: if neither the largest nor a single sample fits, halves of
// the largest are tried. Errors: those of InOneMicroStep() and of `find`.
[[nodiscard]] Result<MicroBatchChoice> ChooseMicroBatch(const PlanRequest& request,
                                                        const MicroBatchSearch& search,
                                                        const FindMemoryNeed& find);

}  // namespace gaccd
