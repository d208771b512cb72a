// Finds the ranks and layers that made an update not finite. The reduction has spread it to all
// ranks, but the parameters still are those of the update before: each rank computes its
// micro-batches once more, one by one, and looks at each loss and gradient before anything is
// summed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/flags_spec.h"
#include "daemon/config/job.h"
#include "daemon/data/prefetcher.h"
#include "daemon/engine/engine.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

// One update of this rank once more.
struct UpdateReplay {
  std::unique_ptr<Prefetcher> batches;  // from its first micro-batch on
  std::int64_t steps = 0;
  SampleSpec spec;
};

// A micro-batch whose own loss or gradient is not finite.
struct Offender {
  std::int64_t micro_step = 0;  // from 0
  std::string where;            // the first parameter whose gradient it is, else "loss"
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> bad_inputs;  // of these, with values that are not finite
};

// Local. Engine::Probe() of every micro-batch with samples; where the engine cannot, those with bad
// inputs.
Result<std::vector<Offender>> FindOffenders(Engine& engine, const FlatLayout& layout,
                                            const UpdateReplay& replay);

// "micro-batch 2 of 3: the gradient of fc1.weight is not finite; samples 4, 17, 23", and how many
// more. REQUIRES: at least one.
[[nodiscard]] std::string Describe(const std::vector<Offender>& offenders, std::int64_t steps);

// What the ranks found together.
struct SharedOffenders {
  std::string text;            // of the lowest rank with one, with its rank and host; or of none
  std::int64_t survivors = 0;  // samples of all ranks that are in no offender
  bool bad_data = false;       // some of them have values that are not finite in the data
};

// What to change where training diverged: "lower the learning rate (optimizer.lr is 0.1), ...".
[[nodiscard]] std::string Remedy(const Job& job, OnNonfinite policy, bool bad_data);
// Collective. my_samples: of this rank in the whole update. The error of a rank that could not look
// is that of all.
Result<SharedOffenders> ShareOffenders(Communicator& comm,
                                       const Result<std::vector<Offender>>& mine,
                                       std::int64_t my_samples, std::int64_t steps,
                                       bool probed = true);

}  // namespace gaccd
