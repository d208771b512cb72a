// Where a training begins: at the first update, or at that of a checkpoint.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/checkpoint/lease.h"
#include "daemon/checkpoint/load.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/sample_ledger.h"
#include "daemon/train/training.h"

namespace gaccd {

// What a run continues from, if anything.
struct ResumePoint {
  std::optional<LoadedState> state;
  std::string folder = {};         // in which it was found
  std::vector<std::string> notes;  // for people: what was passed over, and why
};

struct ResumeSource {
  std::string folder;  // of this run's checkpoints
  // "auto", "never", or the path of a generation or of a run folder. auto looks in `folder` and
  // starts anew only where no checkpoint was ever finished.
  std::string from;
  // Of an attempt after the first of a SLURM job: the writer epoch from which on the checkpoints
  // belong to this job. They come before `from`, which is where the first attempt began.
  std::optional<std::int64_t> job_since;
  // Of `folder`. auto continues it alone, and where it has saved nothing begins where it began.
  TrainingStart training = {};

  // For CheckpointLease::BeginTraining(), where this training is another one than that of the
  // newest checkpoints in `folder`. Empty: it continues them.
  [[nodiscard]] std::string NewTraining(const ResumePoint& found) const;
};

// kData when there are checkpoints and none is whole, kConfig when it belongs to another model or
// would take other samples. Collective.
Result<ResumePoint> FindResumePoint(Communicator& comm, const SavedRun& run,
                                    const ResumeSource& source);

// How many checkpoints of an earlier training stay in the folder of this one. again: the start
// before this one began it and saved nothing. Empty: there are none.
[[nodiscard]] std::string EarlierTrainingWarning(const std::string& folder,
                                                 const TrainingStart& training, bool again);

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
