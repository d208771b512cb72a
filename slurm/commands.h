// Runs SLURM's commands and reads their output.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// Runs a program such as sbatch and waits for its end.
struct ProgramOutput {
  int exit = 0;  // 128 + the signal that ended it
  std::string out;
  std::string err;
};

// Searches PATH for the first word; `input` is the standard input. Truncates each output to 1 MiB.
// SQUEUE_*, SACCT_* and SINFO_*, a user's filters of queries, are removed from the environment.
// Inside a SLURM job, SLURM_* (except SLURM_CONF), PMI*_*, OMPI_* and PRTE_* are removed,
// too, so that a submitted job is independent. kOs: the program cannot be started; kUnavailable:
// it was killed after `limit`, and what it asked for may be done. REQUIRES: no other thread changes
// the environment.
[[nodiscard]] Result<ProgramOutput> RunProgram(const std::vector<std::string>& words,
                                               const std::string& input,
                                               std::chrono::seconds limit);

// Queries the state of jobs: squeue, and sacct for jobs that squeue no longer lists.
struct JobState {
  std::string state;   // "PENDING", "CANCELLED", ...
  std::string reason;  // why it waits: "Resources"; may be empty
  std::string exit;    // "1:0", by sacct; may be empty
};

// By job id, "17", and for a task of an array also by "17_3".
using JobStates = std::map<std::string, JobState>;

// Whether a job in this state will never run again. A requeued or held job will.
[[nodiscard]] bool IsFinal(std::string_view state);

// Adds the jobs in the output of squeue (kSqueueFormat) or sacct (kSacctFormat). Other lines, and
// text that is not plain, are ignored. Pure.
inline constexpr std::string_view kSqueueFormat = "%A|%i|%T|%r";
inline constexpr std::string_view kSacctFormat = "JobIDRaw,JobID,State,ExitCode";
void ParseSqueue(std::string_view text, JobStates* jobs);
void ParseSacct(std::string_view text, JobStates* jobs);

// The jobs of `ids` that SLURM knows. Empty if SLURM is not installed or does not respond.
using JobFinder = std::function<std::optional<JobStates>(std::span<const std::string> ids)>;
[[nodiscard]] std::optional<JobStates> FindJobStates(std::span<const std::string> ids);

}  // namespace gaccd
