// The script that `gaccd submit` passes to sbatch. Pure; thread-safe.
//
// Names of runs, paths and flags are untrusted: each is quoted as a single word, for bash and for
// lines of sbatch.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// The runs of `gaccd submit --array --set FIELD=VALUE,VALUE`: all combinations of the values.
struct SweepTask {
  std::string folder;                        // its name, "0-optimizer.lr=0.1"
  std::vector<std::string> train_arguments;  // "--set", "optimizer.lr=0.1"
  std::vector<JobField> job_fields;          // the same for the plan
};

inline constexpr std::size_t kMaxSweepTasks = 1000;

// The values of the last field change fastest. Folder names contain only [A-Za-z0-9._=,-], sort in
// the order of the tasks, and are unique. Empty if nothing is swept. kUsage: more than
// kMaxSweepTasks.
[[nodiscard]] Result<std::vector<SweepTask>> MakeSweep(const std::vector<SweptField>& fields);

struct SbatchScript {
  std::string plan;      // a line for people
  std::string job_name;  // SafeJobName()
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  bool gpus = false;  // one per rank
  std::string time;   // in sbatch's format; empty, here and in the next three: no such line
  std::string partition;
  std::string account;
  std::string exclude;                  // hosts
  std::vector<std::string> more_flags;  // additional arguments of sbatch; they override these
  std::string signal = "USR2";
  std::int64_t lead_s = 0;  // 0: the ranks get no signal
  std::string lead_reason;
  bool expedite = false;     // --requeue=expedite, where SLURM allows it
  std::string requeue_note;  // for users, one line; empty: none
  // absolute: the run folder, or the parent of the run folders of a sweep; passes CheckRunFolder()
  std::string folder;
  std::string work_folder;                                     // absolute: base of relative paths
  std::vector<std::pair<std::string, std::string>> variables;  // environment variables
  std::vector<std::string> train_arguments;
  bool chain = false;            // several jobs, each waiting for the one before
  std::vector<SweepTask> tasks;  // of a sweep; empty: one run in `folder`
};

[[nodiscard]] std::string Render(const SbatchScript& script);
// Environment variables with which sbatch would override options that the script has.
[[nodiscard]] std::vector<std::string> OverridingVariables(const SbatchScript& script);

// Files in `folder` that Render() refers to.
inline constexpr std::string_view kScriptFile = "/submit.sbatch";
inline constexpr std::string_view kLaunchFile = "/submit.launch";
inline constexpr std::string_view kJobFile = "/submit.txtpb";

// `text` as one word of a #SBATCH line, quoted if necessary. "hetjob" or "packjob" anywhere in such
// a line would begin another component of the job, so theirs get a backslash. REQUIRES: not empty,
// no control characters, which sbatch's parser cannot represent.
[[nodiscard]] std::string SbatchWord(std::string_view text);

// The value of an option of sbatch; with name "--time" and letter 't' from "--time=5", "--time 5",
// "-t5" and "-t 5". The last one wins. letter '\0': it has none.
[[nodiscard]] std::optional<std::string> FindOption(const std::vector<std::string>& words,
                                                    std::string_view name, char letter = '\0');

// Replaces characters other than [A-Za-z0-9._-] by _.
[[nodiscard]] std::string SafeJobName(std::string_view run);

[[nodiscard]] bool HasControlCharacters(std::string_view text);

// kUsage if sbatch or srun could not write files there: a control character, a backslash, %%, or %
// before a digit in the path.
[[nodiscard]] Status CheckRunFolder(std::string_view path);

}  // namespace gaccd
