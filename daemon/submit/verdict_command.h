// The verb verdict: reads the files of an attempt and prints the next step of the job.
#pragma once

#include <optional>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct VerdictRequest {
  std::string attempt_dir;
  std::optional<int> srun_rc;
  std::string nodelist;  // SLURM_JOB_NODELIST, for an attempt without env.json; empty: not known
  bool json = false;     // one line of JSON instead of text
};

// Reads the folders of the attempt and the run, decides, and writes a line to <run>/ledger.jsonl
// and <run>/HOLD with the reason if the run is held, both once per attempt. Returns the text for
// the job script, one item per line: the next step, the reason, and `--exclude=n3,n7` if hosts are
// suspected. If the nodes of the attempt are known, hosts have SLURM's names, and others are
// omitted. Files of the run are untrusted: a file that cannot be read counts as missing. If the
// ledger cannot be written, the reason begins with that. kUsage: no such folder, or not
// <run>/attempts/NNN-<job>; kIo: HOLD cannot be written.
Result<std::string> RunVerdictCommand(const VerdictRequest& request);

}  // namespace gaccd
