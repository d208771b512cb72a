// The micro-batch by the memory of a rank, as --micro-batch=auto asks for it. Pure arithmetic: the
// bytes of a plan come from the caller.
//
// Plans of one batch with as many micro-steps k take the same time and hold the less, the smaller
// their micro-batch: of them only the smallest is looked at, b = ceil(largest load / k). So 13
// samples in two micro-steps are 7 + 6, with evaluations of 7, where 10 would also do.
//
// Where the job leaves Recompute open, that is a part of the choice: of the largest micro-batch
// that fits without and the largest that fits with it, the one whose update is predicted to take
// less time (update_cost.h); without, where both take the same. More micro-steps are cheap and a
// second forward is not, so mostly kBlocks is chosen where nothing else fits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/plan/plan.h"
#include "daemon/plan/update_cost.h"

namespace gaccd {

// `plan` with the smallest micro-batch that has as many micro-steps. Errors: those of Plan::Make().
[[nodiscard]] Result<Plan> WithSmallestMicroBatch(const Plan& plan);

// The plan of `request` with one micro-step: every rank holds all of its samples at once. Its own
// micro_batch is not looked at. kConfig for another rounding than exact, whose batch depends on the
// micro-batch; errors of Plan::Make().
[[nodiscard]] Result<Plan> InOneMicroStep(const PlanRequest& request);

// Finds what a plan needs, of the rank that has the least room for it. Where several ranks choose,
// it is collective and gives all of them the same.
using FindMemoryNeed = std::function<Result<MemoryNeed>(const Plan& plan)>;

struct MicroBatchChoice {
  // That were looked at, those of kNone before those of kBlocks, the largest micro-batch first;
  // memory() of each.
  std::vector<Plan> plans;
  std::size_t chosen = 0;  // of them
  bool fits = false;       // false: none does; the chosen one needs the least

  [[nodiscard]] const Plan& plan() const { return plans[chosen]; }
};

struct MicroBatchSearch {
  std::int64_t most = 0;    // no larger micro-batch; 0: any
  std::size_t smaller = 0;  // so many smaller ones are looked at as well, for people
  // The job leaves Recompute open: kBlocks is looked at as well, always where it is for people,
  // else where a single micro-step does not fit without. REQUIRES: the request has kNone.
  bool recompute = false;
  UpdateCost cost = {};  // of recompute
};

// The largest micro-batch whose memory fits, where the next larger one of fewer micro-steps does
// not. `find` is called for few plans. The bytes need not grow with the micro-batch: where neither
// the largest fits nor one sample, halves of the largest are looked at, as what a batch norm keeps
// of every micro-batch may be less for fewer ones. Errors: those of
// InOneMicroStep() and of `find`.
[[nodiscard]] Result<MicroBatchChoice> ChooseMicroBatch(const PlanRequest& request,
                                                        const MicroBatchSearch& search,
                                                        const FindMemoryNeed& find);

}  // namespace gaccd
