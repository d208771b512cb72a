// The start of a training: at the first update, or at that of a checkpoint.
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
#include "daemon/engine/sample_audit.h"
#include "daemon/train/training.h"

namespace gaccd {

// The checkpoint from which a run continues, if any.
struct ResumePoint {
  std::optional<LoadedState> state;
  std::string folder = {};         // folder in which it was found
  std::vector<std::string> notes;  // for users: skipped checkpoints, with the reason
};

struct ResumeSource {
  std::string folder;  // folder of this run's checkpoints
  // "auto", "never", or the path of a generation or of a run folder. auto searches `folder`, and
  // starts from scratch only if no checkpoint was ever committed.
  std::string from;
  // For later attempts of a SLURM job: the writer epoch from which on checkpoints belong to this
  // job. They take precedence over `from`, the start of the first attempt.
  std::optional<std::int64_t> job_since;
  // The newest training in `folder`. auto continues only this one. If this one has saved nothing
  // (or nothing since it went back), auto starts where it started.
  TrainingStart training = {};

  // Argument of CheckpointLease::BeginTraining() if the newest checkpoints in `folder` belong to
  // another training. Empty: this one continues them.
  [[nodiscard]] std::string NewTraining(const ResumePoint& found) const;
  // Argument of CheckpointLease::GoBackTo() if `from` is a generation of this training, which may
  // not be its newest. Empty otherwise.
  [[nodiscard]] std::string GoesBackTo(const ResumePoint& found) const;
  // Whether the checkpoint is in `folder`.
  [[nodiscard]] bool IsOwn(const ResumePoint& found) const;
};

// kData if there are checkpoints but none is intact; kIo if one cannot be read and may be intact;
// kConfig if the checkpoint belongs to another model or its next samples would differ. Collective.
Result<ResumePoint> FindResumePoint(Communicator& comm, const SavedRun& run,
                                    const ResumeSource& source);

// Warning with the number of checkpoints of an earlier training in the folder. again: the previous
// start began the training and saved nothing. Empty: none.
[[nodiscard]] std::string EarlierTrainingWarning(const std::string& folder,
                                                 const TrainingStart& training, bool again);

// Data of an interrupted update in a checkpoint, on this rank.
struct RestoredPartialUpdate {
  std::int64_t micro_step = 0;  // number of micro-steps done
  std::vector<float> accumulators;
  PartialUpdate share;
};

struct StartPoint {
  std::int64_t updates = 0;    // number of updates done
  std::int64_t samples = 0;    // samples of these updates
  bool at_boundary = true;     // false: saved inside the next update
  bool in_own_folder = false;  // the checkpoint is one of this run's folder
  std::optional<RestoredPartialUpdate> partial = {};
};

// Restores the parameters and the optimiser of the engine from a checkpoint that was accepted for
// `run`, a training of `updates` updates. If it was saved inside an update, returns the partial
// update of this rank if the same micro-steps can continue; otherwise rank 0 warns that the update
// restarts.
Result<StartPoint> RestoreState(Engine& engine, const LoadedState& state, const SavedRun& run,
                                std::int64_t updates, int rank);

}  // namespace gaccd
