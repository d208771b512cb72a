// The verb verdict: reads the files of an attempt and prints the next step of the job.
#pragma once

#include <optional>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct VerdictRequest {
  std::string attempt_dir;
  std::optional<int> srun_rc;
  std::string nodelist;  // SLURM_JOB_NODELIST; empty: not known
  bool json = false;     // one line of JSON in place of the lines of text
};

// Reads the attempt's and the run's folder, judges, and writes: a line in <run>/ledger.jsonl (once
// an attempt), and <run>/HOLD with the reason when the run is held. The text is for the job script:
// the next step, the reason, and `--exclude=n3,n7` when hosts are suspected, a line each; they are
// named as SLURM names the nodes of this job, and a host that is none of them is left out. What the
// run left is from outside: a file that cannot be read counts as missing. Where the ledger cannot
// be written, the reason begins with that. kUsage: no such folder, or not <run>/attempts/NNN-<job>;
// kIo: HOLD cannot be written.
Result<std::string> RunVerdictCommand(const VerdictRequest& request);

}  // namespace gaccd
