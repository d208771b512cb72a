// The micro-batches that --micro-batch=auto looked at, as a table for people.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "daemon/plan/micro_batch.h"

namespace gaccd {

// Ends with a newline. `limit`: where the limit comes from, "80000.0 MB (--memory)". REQUIRES:
// every plan of the choice has memory().
[[nodiscard]] std::string MemoryTableText(const MicroBatchChoice& choice, const UpdateCost& cost,
                                          std::string_view limit);

}  // namespace gaccd
