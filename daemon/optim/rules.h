// The optimisers behind MakeOptimizer().
#pragma once

#include <memory>
#include <span>

#include "collectives/base/result.h"
#include "daemon/optim/optimizer.h"

namespace gaccd {

Status CheckSgd(const SgdSpec& spec);      // kConfig with the offending value
Status CheckAdamW(const AdamWSpec& spec);  // kConfig with the offending value

// REQUIRES: a checked spec; a state span of StateElements() zeroed values that outlives the result.
std::unique_ptr<Optimizer> MakeSgd(const SgdSpec& spec, std::int64_t parameters,
                                   std::span<float> state);
std::unique_ptr<Optimizer> MakeAdamW(const AdamWSpec& spec, std::int64_t parameters,
                                     std::span<float> state);

}  // namespace gaccd
