// The gradient of one contrastive update without an engine, for selftests and tests: correct, or
// with known mistakes of other programs.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/data/prefetcher.h"
#include "daemon/plan/plan.h"
#include "daemon/replica/model.h"

namespace gaccd {

enum class ContrastiveMistake : std::uint8_t {
  kNone,
  kWorldFactor,     // gradients times the number of ranks
  kLocalNegatives,  // every rank only compares its own samples
  kScaleKFold,      // the gradient of the scale is counted once per micro-step
  kStaleRows,       // uses representations from the parameters before the last step
  kLastOnly,        // earlier micro-batches of an update are overwritten
};
inline constexpr ContrastiveMistake kContrastiveMistakes[] = {
    ContrastiveMistake::kWorldFactor, ContrastiveMistake::kLocalNegatives,
    ContrastiveMistake::kScaleKFold, ContrastiveMistake::kStaleRows, ContrastiveMistake::kLastOnly};
[[nodiscard]] std::string_view Name(ContrastiveMistake mistake);  // "world-size factor", ...

// Whether it changes the gradient of such an update: not with one rank, or one micro-step.
[[nodiscard]] bool HasEffect(ContrastiveMistake mistake, const Plan& plan);

// Collective. The gradient summed over the ranks. batches: those of the update in two passes.
Result<std::vector<float>> ContrastiveGradient(Communicator& comm, const Model& model,
                                               std::span<const float> parameters, const Plan& plan,
                                               Prefetcher& batches, ContrastiveMistake mistake);

}  // namespace gaccd
