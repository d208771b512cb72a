// `gaccd submit`: plans a training, writes its script into the run folder, gives it to sbatch.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/submit/planned_submission.h"

namespace gaccd {

// In the run folder (of a sweep: the folder of the run folders): submit.sbatch, submit.launch
// (slurm/launch), submit.txtpb (the job as it is now, with absolute paths of data) and, once it is
// submitted, a line in submit.jsonl of every run. --dry-run and --test-only write nothing.
// Asks SLURM once each: scontrol for partitions and settings, srun and, with device auto, sinfo,
// for warnings; then sbatch.
//
// check: of each run, called before anything is written; its errors are returned.
// kUsage, kConfig: flags that are missing, are incompatible, or that `gaccd plan` refuses; a run
// folder that is not safe or whose run lives; the files STOP or HOLD in it. kIo: the folder cannot
// be written. kOs: sbatch refused; what it said. Jobs of a chain that were submitted before are
// entered.
Status RunSubmitCommand(const Flags& flags, const PlannedRunCheck& check);

}  // namespace gaccd
