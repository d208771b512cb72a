// <run>/submit.jsonl: the jobs that `gaccd submit` gave to SLURM, a line for each call of it.
#pragma once

#include <optional>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct Submission {
  std::string at;    // RFC 3339, before sbatch was called
  std::string jobs;  // their ids, apart by commas: "17,18"; tasks of an array as "17_3"
};

// kIo.
Status AppendSubmission(const std::string& run_dir, const Submission& submission, unsigned mode);

// The last one. What is no such line is passed over.
[[nodiscard]] std::optional<Submission> NewestSubmission(const std::string& run_dir);

}  // namespace gaccd
