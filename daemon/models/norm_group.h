// The samples that the batch norms of a job normalise together.
#pragma once

#include <cstdint>

#include "daemon/config/job.h"
#include "daemon/ops/norm/batch_norm.h"

namespace gaccd {

// Settings of all batch norms of a network, as in BatchNormSpec.
struct NormStatistics {
  BatchStatistics stats = BatchStatistics::kWindow;
  std::int64_t ghost_size = 32;  // for kGhost
};

[[nodiscard]] constexpr NormGroup ToNormGroup(BatchStatistics statistics) {
  switch (statistics) {
    case BatchStatistics::kWindow:
      return NormGroup::kUpdate;
    case BatchStatistics::kMicro:
      return NormGroup::kMicroBatch;
    case BatchStatistics::kGhost:
      return NormGroup::kRuns;
    case BatchStatistics::kFrozen:
      break;
  }
  return NormGroup::kNone;
}

}  // namespace gaccd
