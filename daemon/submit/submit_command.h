// `gaccd submit`: plans a training, writes its script to the run folder, and calls sbatch.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/submit/planned_submission.h"

namespace gaccd {

// Writes to the run folder (for a sweep: the parent of the run folders): submit.sbatch,
// submit.launch (slurm/launch), submit.txtpb (the current job with absolute data paths) and, when
// it is submitted, a line in submit.jsonl of every run. --dry-run and --test-only write nothing.
// Calls scontrol, srun and, with device auto, sinfo, for warnings; then sbatch for each job of a
// chain.
//
// check: called for each run before anything is written; its errors are returned.
// kUsage, kConfig: flags that are missing, incompatible, or rejected by `gaccd plan`; a run folder
// that is unsafe or has an active run; the files STOP or HOLD in it. kIo: the folder cannot be
// written. kOs: sbatch failed, with its message. Jobs of a chain that were already submitted are
// recorded.
Status RunSubmitCommand(const Flags& flags, const PlannedRunCheck& check);

}  // namespace gaccd
