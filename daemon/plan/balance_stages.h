// BalanceStages: divides the consecutive blocks of a model into the stages of a pipeline.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// Number of blocks of each stage, at least one, such that the cost of the most expensive stage is
// minimal; among equal divisions, the one with the smallest first stages. costs: by block, not
// negative. least_first: number of blocks that the first stage needs. kConfig: more stages than
// blocks.
Result<std::vector<std::int64_t>> BalanceStages(std::span<const double> costs, std::int64_t stages,
                                                std::int64_t least_first = 1);

}  // namespace gaccd
