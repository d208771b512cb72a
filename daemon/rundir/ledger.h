// <run>/ledger.jsonl: the result of each attempt, across restarts; one line of flat JSON per
// attempt.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/rundir/attempt_verdict.h"

namespace gaccd {

// Oldest first; of a file of more than 1 MiB the newest entries that fit. Invalid lines are
// skipped; empty if there is no file.
[[nodiscard]] std::vector<LedgerEntry> ReadLedger(const std::string& path);

// Appends one line, durably; mode: for a new file. kIo.
Status AppendToLedger(const std::string& path, LedgerEntry entry, unsigned mode = 0600);

// <run>/submit.jsonl: the jobs that `gaccd submit` passed to SLURM, one line per call.
struct Submission {
  std::string at;    // RFC 3339, before the call of sbatch
  std::string jobs;  // ids separated by commas: "17,18"; array tasks as "17_3"
};

// kIo.
Status AppendSubmission(const std::string& run_dir, const Submission& submission, unsigned mode);

// The last entry. Invalid lines are skipped.
[[nodiscard]] std::optional<Submission> NewestSubmission(const std::string& run_dir);

}  // namespace gaccd
