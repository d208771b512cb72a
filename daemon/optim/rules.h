// The optimisers behind MakeOptimizer(), and what those of CPU and GPU share.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "collectives/base/result.h"
#include "daemon/optim/optimizer.h"
#include "daemon/optim/update_math.h"

namespace gaccd {

Status CheckSgd(const SgdSpec& spec);      // kConfig with the offending value
Status CheckAdamW(const AdamWSpec& spec);  // kConfig with the offending value
// The two above and the learning rate; kInternal: more than 2^59 parameters.
Status CheckOptimizer(const OptimizerSpec& spec, const OptimizerRanges& ranges);

enum class SgdRule : std::uint8_t { kPlain, kMomentum, kNesterov };
[[nodiscard]] SgdRule RuleOf(const SgdSpec& spec);

// What the formulas need for one update of a group; gradient_scale 1. update: 1, 2, ...
[[nodiscard]] SgdFactors FactorsOf(const SgdSpec& spec, const OptimizerGroup& group, double lr);
[[nodiscard]] AdamWFactors FactorsOf(const AdamWSpec& spec, const OptimizerGroup& group, double lr,
                                     std::int64_t update);

// REQUIRES: a checked spec; a state span of StateElements() zeroed values that outlives the result.
std::unique_ptr<Optimizer> MakeSgd(const SgdSpec& spec, OptimizerRanges ranges,
                                   std::span<float> state);
std::unique_ptr<Optimizer> MakeAdamW(const AdamWSpec& spec, OptimizerRanges ranges,
                                     std::span<float> state);

}  // namespace gaccd
