// BalanceStages: neighbouring blocks of a model are divided into the stages of a pipeline.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// The blocks of each stage, at least one, so that the most expensive stage costs as little as can
// be; of several such divisions the one whose first stages are small. costs: of each block, none
// negative. kConfig: there are more stages than blocks.
Result<std::vector<std::int64_t>> BalanceStages(std::span<const double> costs, std::int64_t stages);

}  // namespace gaccd
