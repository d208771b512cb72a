// The SLURM_* variables of this process, read once (names: `man srun`, OUTPUT ENVIRONMENT
// VARIABLES). Needs neither SLURM's library nor MPI.
//
//   where                    in_job()  in_step()
//   login node, laptop       no        no
//   sbatch script, salloc    yes       no
//   process started by srun  yes       yes
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"

namespace gaccd {

// Number of tasks on the nodes: SLURM's "2(x3),1" is {min 1, max 2, tasks 7, nodes 4}.
struct TasksPerNode {
  std::int64_t min = 0;
  std::int64_t max = 0;
  std::int64_t tasks = 0;
  std::int64_t nodes = 0;
};
// kConfig, with the text, if it has another form.
[[nodiscard]] Result<TasksPerNode> ParseTasksPerNode(std::string_view text);

// Inside a step, which may use a part of the job, the numbers are the step's; otherwise the job's.
struct SlurmEnvironment {
  std::optional<std::int64_t> job_id;
  std::optional<std::int64_t> step_id;     // set only for a step that srun started
  std::int64_t restart_count = 0;          // requeues of this job so far
  std::optional<std::int64_t> end_time_s;  // seconds since 1970 at which the job is killed

  std::optional<std::int64_t> procid;      // 0..step_tasks-1; only inside a step
  std::optional<std::int64_t> step_tasks;  // only inside a step
  // SLURM's short form, see ExpandHostlist; under mpirun that of the job.
  std::string nodelist;
  // Not set under mpirun, whose ranks may be elsewhere than the step says:
  std::optional<std::int64_t> nodes;
  std::string nodes_variable;  // the variable that `nodes` was read from, for messages
  std::optional<TasksPerNode> tasks_per_node;
  std::string tasks_per_node_variable;
  std::string tasks_per_node_text;

  std::string partition;
  std::string account;

  // kConfig, with variable and value, for a malformed number and for an inconsistent step
  // (procid >= step_tasks).
  static Result<SlurmEnvironment> Read(const Environment& environment);

  [[nodiscard]] bool in_job() const { return job_id.has_value(); }
  [[nodiscard]] bool in_step() const { return step_id.has_value(); }
};

// Removes the SLURM_STEP* of a step that srun did not start, as of salloc's shell, from the
// environment of this process, which is no rank. REQUIRES: there is one thread.
void UnsetReservedStep();

// Checks --nodes and --gpus-per-node (empty: not set) against the job: one rank drives one GPU, so
// gpus_per_node must equal the tasks on every node. kConfig with the flag, both values and the
// variable. Always OK outside a job.
[[nodiscard]] Status CheckNodes(std::optional<std::int64_t> flag_nodes,
                                std::optional<std::int64_t> flag_gpus_per_node,
                                const SlurmEnvironment& env);

}  // namespace gaccd
