#include "slurm/environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Step ids from here on are SLURM's own (batch script, salloc's shell, ...), not started by srun.
constexpr std::int64_t kFirstReservedStep = 0xfffffff0;

class Reader {
 public:
  explicit Reader(const Environment& environment) : environment_(environment) {}

  // A variable that is set but empty counts as not set: shells export such.
  [[nodiscard]] std::optional<std::string> Text(std::string_view name) const {
    auto value = environment_(std::string(name));
    if (value && value->empty()) value.reset();
    return value;
  }

  [[nodiscard]] bool Has(std::string_view name) const { return Text(name).has_value(); }

  // Remembers the first error; the caller asks status() at the end.
  std::optional<std::int64_t> Count(std::string_view name) {
    const auto text = Text(name);
    if (!text) return std::nullopt;
    const auto value = ToCount(*text);
    if (!value) Fail(StrCat(name, "=", *text, ": expected a whole number >= 0"));
    return value;
  }

  void Fail(std::string message) {
    if (status_.ok()) status_ = Status(ErrorKind::kConfig, std::move(message));
  }
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  const Environment& environment_;
  Status status_;
};

// The first of two variables that is set: the step's, then the job's.
std::string FirstSet(const Reader& reader, std::string_view first, std::string_view second) {
  if (reader.Has(first)) return std::string(first);
  return reader.Has(second) ? std::string(second) : std::string();
}

void ReadStep(Reader& reader, SlurmEnvironment& env) {
  const auto step = reader.Count("SLURM_STEP_ID");
  if (!step || *step >= kFirstReservedStep) return;
  env.step_id = step;
  env.procid = reader.Count("SLURM_PROCID");
  env.step_tasks = reader.Count("SLURM_STEP_NUM_TASKS");
  if (env.procid && env.step_tasks && *env.procid >= *env.step_tasks) {
    reader.Fail(StrCat("SLURM_PROCID=", *env.procid,
                       ": expected below SLURM_STEP_NUM_TASKS=", *env.step_tasks));
  }
}

void ReadNodes(Reader& reader, SlurmEnvironment& env) {
  // Under mpirun the step is that of Open MPI's daemons, one a node and not on the first.
  const bool mpirun = reader.Has("OMPI_COMM_WORLD_SIZE");
  const bool step = env.in_step() && !mpirun;
  env.nodelist = reader
                     .Text(FirstSet(reader, step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST",
                                    "SLURM_NODELIST"))
                     .value_or("");
  if (mpirun) return;
  env.nodes_variable =
      FirstSet(reader, step ? "SLURM_STEP_NUM_NODES" : "SLURM_JOB_NUM_NODES", "SLURM_NNODES");
  if (!env.nodes_variable.empty()) env.nodes = reader.Count(env.nodes_variable);
  // A step's SLURM_NTASKS_PER_NODE is the requested number; only the list is the actual one.
  env.tasks_per_node_variable = FirstSet(
      reader, step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE");
  if (env.tasks_per_node_variable.empty()) return;
  env.tasks_per_node_text = *reader.Text(env.tasks_per_node_variable);
  auto tasks = ParseTasksPerNode(env.tasks_per_node_text);
  if (tasks.ok()) {
    env.tasks_per_node = *tasks;
  } else {
    reader.Fail(StrCat(env.tasks_per_node_variable, "=", tasks.status().message()));
  }
}

void ReadIdentity(Reader& reader, SlurmEnvironment& env) {
  env.job_id = reader.Count("SLURM_JOB_ID");
  env.restart_count = reader.Count("SLURM_RESTART_COUNT").value_or(0);
  // A shell may still have the variable of a job that has ended.
  if (env.in_job()) env.end_time_s = reader.Count("SLURM_JOB_END_TIME");
  env.partition = reader.Text("SLURM_JOB_PARTITION").value_or("");
  env.account = reader.Text("SLURM_JOB_ACCOUNT").value_or("");
}

Status Mismatch(std::string_view flag, std::int64_t flag_value, std::string_view variable,
                std::string_view found) {
  return {ErrorKind::kConfig,
          StrCat(flag, "=", flag_value, " but SLURM gave ", variable, "=", found,
                 ": leave the flag out, or submit with the same number")};
}

}  // namespace

Result<TasksPerNode> ParseTasksPerNode(std::string_view text) {
  const Status bad(ErrorKind::kConfig,
                   StrCat(text, ": expected tasks per node in the form 2(x3),1"));
  TasksPerNode all{std::numeric_limits<std::int64_t>::max(), 0, 0, 0};
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(',', at), text.size());
    std::string_view item = text.substr(at, end - at);
    std::optional<std::int64_t> nodes = 1;
    if (const std::size_t open = item.find("(x"); open != std::string_view::npos) {
      if (item.back() != ')') return bad;
      nodes = ToCount(item.substr(open + 2, item.size() - open - 3));
      item = item.substr(0, open);
    }
    const auto tasks = ToCount(item);
    std::int64_t product = 0;
    if (!tasks || !nodes || *nodes == 0 || __builtin_mul_overflow(*tasks, *nodes, &product) ||
        __builtin_add_overflow(all.tasks, product, &all.tasks) ||
        __builtin_add_overflow(all.nodes, *nodes, &all.nodes)) {
      return bad;
    }
    all.min = std::min(all.min, *tasks);
    all.max = std::max(all.max, *tasks);
    at = end + 1;
  }
  return all;
}

Result<SlurmEnvironment> SlurmEnvironment::Read(const Environment& environment) {
  Reader reader(environment);
  SlurmEnvironment env;
  ReadIdentity(reader, env);
  if (env.in_job()) {
    ReadStep(reader, env);
    ReadNodes(reader, env);
  }
  GACCD_RETURN_IF_ERROR(reader.status());
  return env;
}

void UnsetReservedStep() {
  const auto step = ToCount(ProcessEnvironment()("SLURM_STEP_ID").value_or(""));
  if (!step || *step < kFirstReservedStep) return;
  std::vector<std::string> names;
  for (char** one = environ; *one != nullptr; ++one) {
    const std::string_view variable = *one;
    if (variable.starts_with("SLURM_STEP"))
      names.emplace_back(variable.substr(0, variable.find('=')));
  }
  for (const std::string& name : names) ::unsetenv(name.c_str());
}

Status CheckNodes(std::optional<std::int64_t> flag_nodes,
                  std::optional<std::int64_t> flag_gpus_per_node, const SlurmEnvironment& env) {
  if (!env.in_job()) return Status::Ok();
  if (flag_nodes && env.nodes && *flag_nodes != *env.nodes) {
    return Mismatch("--nodes", *flag_nodes, env.nodes_variable, std::to_string(*env.nodes));
  }
  if (flag_gpus_per_node && env.tasks_per_node &&
      (env.tasks_per_node->min != *flag_gpus_per_node ||
       env.tasks_per_node->max != *flag_gpus_per_node)) {
    return Mismatch("--gpus-per-node", *flag_gpus_per_node, env.tasks_per_node_variable,
                    env.tasks_per_node_text);
  }
  return Status::Ok();
}

}  // namespace gaccd
