// One update, from micro-batches to new parameters: all phases in one function, in one order
// (design section 4). Everything that makes accumulation right or wrong stands here.
#pragma once

#include <cstdint>

#include "collectives/base/result.h"
#include "collectives/bucket/bucket_reducer.h"
#include "collectives/comm/communicator.h"
#include "daemon/accum/sample_ledger.h"
#include "daemon/data/prefetcher.h"
#include "daemon/model/replica.h"
#include "daemon/optim/optimizer.h"
#include "daemon/plan/plan.h"

namespace gaccd {

// What an update works on; all of one rank, none owned.
struct UpdateParts {
  Communicator& comm;
  Replica& replica;
  Optimizer& optimizer;
  Prefetcher& batches;  // gives this rank's micro-batches in the order of the plan
  SampleLedger& ledger;
  BucketReducer& reducer;  // of replica.gradients()
};

struct UpdateSettings {
  double lr = 0;         // of this update, warm-up and rule included
  double clip_norm = 0;  // 0 = do not clip
};

struct UpdateFigures {
  std::int64_t samples = 0;  // audited: counted over all ranks
  double loss = 0;           // mean over `samples`
  double grad_norm = 0;      // of the reduced gradient, before clipping
  double dur_s = 0;          // = data_s + fwd_bwd_s + reduce_s + opt_s
  double data_s = 0;         // waiting for micro-batches
  double fwd_bwd_s = 0;
  double reduce_s = 0;
  double opt_s = 0;  // norm, clip, step, audit
};

// Collective. Errors: kNoRequeue when loss or gradient is not finite (on every rank alike: they see
// the same sums); kInternal from the audit; whatever the communicator says. After an error the
// parameters are those of the update before, or, after a failed audit, not to be used.
Result<UpdateFigures> RunUpdate(const UpdateParts& parts, const Plan& plan,
                                const UpdateSettings& settings);

}  // namespace gaccd
