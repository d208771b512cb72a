// The script that `gaccd submit` gives to sbatch. Pure; thread-safe.
//
// Names of runs, paths and flags come from outside: none of them, whatever it contains, becomes
// more than the one word that it is, neither for bash nor in a line for sbatch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/submit/sweep.h"

namespace gaccd {

struct SbatchScript {
  std::string plan;      // a line for people
  std::string job_name;  // SafeJobName()
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  bool gpus = false;  // one a rank
  std::string time;   // as sbatch takes it; empty, as the next three: no such line
  std::string partition;
  std::string account;
  std::string exclude;                  // hosts
  std::vector<std::string> more_flags;  // of sbatch, as its command line has them; win over these
  std::string signal = "USR2";
  std::int64_t lead_s = 0;  // 0: the ranks get no signal
  std::string lead_reason;
  bool expedite = false;     // --requeue=expedite, where SLURM allows it
  std::string requeue_note;  // for people, one line; empty: none
  std::string folder;        // absolute: of the run, or of the runs of a sweep; CheckRunFolder()
  std::string work_folder;   // absolute: where relative paths begin
  std::vector<std::pair<std::string, std::string>> variables;  // of the environment
  std::vector<std::string> train_arguments;
  std::vector<SweepTask> tasks;  // of a sweep; empty: one run, in `folder`
};

[[nodiscard]] std::string Render(const SbatchScript& script);

// In `folder`: what Render() names.
inline constexpr std::string_view kScriptFile = "/submit.sbatch";
inline constexpr std::string_view kLaunchFile = "/submit.launch";
inline constexpr std::string_view kJobFile = "/submit.txtpb";

// `text` as one word of a line of #SBATCH: quoted where it must be. For sbatch, "hetjob" or
// "packjob" anywhere in such a line begins another component of the job, so theirs gets a
// backslash. REQUIRES: not empty, no control characters: its parser has no way to write them.
[[nodiscard]] std::string SbatchWord(std::string_view text);

// The value of an option among words of a command line of sbatch, `name` being "--time": of
// "--time=5", "--time 5", "-t5" and "-t 5". The last one counts.
[[nodiscard]] std::optional<std::string> OptionOf(const std::vector<std::string>& words,
                                                  std::string_view name, char letter);

// What else than [A-Za-z0-9._-] is in it becomes _.
[[nodiscard]] std::string SafeJobName(std::string_view run);

[[nodiscard]] bool HasControlCharacters(std::string_view text);

// kUsage when sbatch or srun could not write files there: a control character, a backslash, %%, or
// % before a digit in the path.
[[nodiscard]] Status CheckRunFolder(std::string_view path);

}  // namespace gaccd
