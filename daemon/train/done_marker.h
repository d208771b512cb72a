// <run>/DONE: the marker of a complete training. The first line is text for users, the rest is the
// job that was trained. While it exists, launch and verdict consider the run complete; a start with
// more epochs or updates removes it as soon as it owns the folder.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/plan/plan.h"

namespace gaccd {

struct DoneRun {
  enum class Next : std::uint8_t {
    kTrain,  // no DONE
    // the same job with more updates, or with more patience if patience had ended the run: continue
    // as if there were no DONE
    kContinue,
    kNothing,  // the same job: nothing to do
  };
  Next next = Next::kTrain;
  std::string text = {};  // for kNothing: text for users
};

// Collective: rank 0 reads the folder, all ranks get its result. Call this before any other use of
// the run folder: kConfig if it is in an unsafe place (safe_place.h). If there is nothing to train,
// it writes the weights requested by --save-weights from the newest checkpoint.
//
// For a complete run: kConfig, with the differences, for a job that would give other weights, and
// for --resume=never, which would overwrite its checkpoints. An attempt that SLURM requeued
// (`requeued`) continues from its own checkpoints, whatever --resume says.
Result<DoneRun> FindDone(Communicator& comm, const Flags& flags, const Job& job, const Plan& plan,
                         bool requeued);

// Call on rank 0 before writing to the folder. kNoRequeue if the file STOP exists: the run stays
// stopped, with its progress.
Status CheckNotStopped(const std::string& run_dir);

// Call on rank 0; durable. Removes a STOP that came too late, as it would prevent further training
// of the complete run. text: one line.
Status MarkDone(const std::string& run_dir, const std::string& text, const Job& job, unsigned mode);
// Call on rank 0. Ok if there is none.
Status RemoveDone(const std::string& run_dir);

}  // namespace gaccd
