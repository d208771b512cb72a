// <run>/DONE: the training is complete. Its first line says so to people, the rest is the job that
// was trained. While it is there, launch and verdict take the run for complete; a start with more
// epochs or updates removes it as soon as it owns the folder.
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
    kTrain,    // there is no DONE
    kTrainOn,  // the same job with more updates, or with more patience where that had ended it: as
               // without DONE
    kNothing,  // the same job: nothing to do
  };
  Next next = Next::kTrain;
  std::string text = {};  // of kNothing, for people
};

// Rank 0 looks, all get its answer. First of all that use the run folder: kConfig when it is in a
// place that is not safe (safe_place.h). Where there is nothing to train it writes the weights that
// --save-weights asks for, from the newest checkpoint. Collective.
//
// Of a complete run kConfig, naming the differences, for a job that would give other weights, and
// for --resume=never, which would train over its checkpoints. An attempt that SLURM requeued
// (`requeued`) continues from its own, whatever --resume says.
Result<DoneRun> FindDone(Communicator& comm, const Flags& flags, const Job& job, const Plan& plan,
                         bool requeued);

// By rank 0, before this start leaves anything in the folder. kNoRequeue where the file STOP is
// there: the run stays as it was stopped, with its progress.
Status CheckNotStopped(const std::string& run_dir);

// By rank 0; down to the disk. A STOP that came too late is removed: it would keep the complete run
// from being trained on. `text`: one line.
Status MarkDone(const std::string& run_dir, const std::string& text, const Job& job, unsigned mode);
// By rank 0. Success when there is none.
Status RemoveDone(const std::string& run_dir);

}  // namespace gaccd
