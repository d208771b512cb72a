// <run>/submit.jsonl: the jobs that `gaccd submit` passed to SLURM, one line per call.
#pragma once

#include <optional>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct Submission {
  std::string at;    // RFC 3339, before the call of sbatch
  std::string jobs;  // ids separated by commas: "17,18"; array tasks as "17_3"
};

// kIo.
Status AppendSubmission(const std::string& run_dir, const Submission& submission, unsigned mode);

// The last entry. Invalid lines are skipped.
[[nodiscard]] std::optional<Submission> NewestSubmission(const std::string& run_dir);

}  // namespace gaccd
