// Finds the ranks and layers that made an update non-finite. The reduction has spread the values to
// all ranks, but the parameters are unchanged: each rank computes its micro-batches again, one by
// one, and checks each loss and gradient before anything is summed.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
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

// The micro-batches of one update of this rank, to be computed again.
struct UpdateReplay {
  std::unique_ptr<Prefetcher> batches;  // begins at its first micro-batch
  std::int64_t steps = 0;
  SampleSpec spec;
};

// A micro-batch with a loss or gradient that is not finite, or not below a limit.
struct Offender {
  std::int64_t micro_step = 0;  // from 0
  std::string where;            // the first parameter with such a gradient, else "loss"
  bool too_large = false;       // it is finite, but not below the limit
  std::vector<std::int64_t> samples;
  std::vector<std::int64_t> bad_inputs;  // the samples with non-finite input values
};

// The first parameter with a value, or a gradient, that is not finite; empty: all are finite.
[[nodiscard]] std::string FirstNotFiniteParameter(const FlatLayout& layout,
                                                  std::span<const float> values);

// Local. Calls Engine::Probe() for every micro-batch with samples; if the engine cannot probe,
// returns micro-batches with bad inputs. limit: of the absolute values of gradients. loss_only: a
// gradient is no offence if the loss is finite (in fp16 it overflows if the loss scale is too
// high).
Result<std::vector<Offender>> FindOffenders(Engine& engine, const FlatLayout& layout,
                                            const UpdateReplay& replay, float limit,
                                            bool loss_only);

// "micro-batch 2 of 3: the gradient of fc1.weight is not finite; samples 4, 17, 23", and the number
// of further ones. REQUIRES: at least one offender.
[[nodiscard]] std::string Describe(const std::vector<Offender>& offenders, std::int64_t steps);

// Combined result of all ranks.
struct SharedOffenders {
  // the offenders of the lowest rank that has any, with rank and host; or that none exists
  std::string text;
  std::int64_t remaining_samples = 0;  // samples of all ranks that are in no offender
  bool bad_data = false;               // some offenders have non-finite values in the data
};

// Advice after a divergence: "lower the learning rate (optimizer.lr is 0.1), ...".
[[nodiscard]] std::string Remedy(const Job& job, OnNonfinite policy, bool bad_data);
// Collective. my_samples: of this rank in the whole update. If the search failed on a rank, all
// ranks return its error.
Result<SharedOffenders> ShareOffenders(Communicator& comm,
                                       const Result<std::vector<Offender>>& mine,
                                       std::int64_t my_samples, std::int64_t steps,
                                       bool probed = true);

}  // namespace gaccd
