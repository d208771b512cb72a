// StartPoint: where a training begins: at the first update, or at that of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/accum/sample_ledger.h"
#include "daemon/checkpoint/load.h"
#include "daemon/engine/engine.h"
#include "daemon/train/checkpointer.h"

namespace gaccd {

// What a checkpoint inside an update holds of it, on this rank.
struct RestoredWindow {
  std::int64_t micro_step = 0;  // so many are done
  std::vector<float> accumulators;
  WindowShare share;
};

struct StartPoint {
  std::int64_t updates = 0;  // that are done
  std::int64_t samples = 0;  // that they took
  bool at_boundary = true;   // false: saved inside the next update
  std::optional<RestoredWindow> window = {};
};

// Gives the engine the parameters and the optimiser of a checkpoint that was accepted for `run`, a
// training of so many updates. Saved inside an update: the window of this rank, where the same
// micro-steps continue; else a warning of rank 0 says that the update restarts.
Result<StartPoint> RestoreState(Engine& engine, const LoadedState& state, const SavedRun& run,
                                std::int64_t updates, int rank);

}  // namespace gaccd
