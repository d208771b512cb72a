// Text table of the micro-batches considered by --micro-batch=auto.
#pragma once

#include <string>
#include <string_view>

#include "daemon/plan/micro_batch.h"

namespace gaccd {

// Ends with a newline. limit: the limit and its origin, "80000.0 MB (--memory)". REQUIRES: every
// plan of the choice has memory().
[[nodiscard]] std::string MemoryTableText(const MicroBatchChoice& choice, const UpdateCost& cost,
                                          std::string_view limit);

}  // namespace gaccd
