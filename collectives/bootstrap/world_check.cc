#include "collectives/bootstrap/world_check.h"

#include <array>
#include <map>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

constexpr const char* kStepTasks = "SLURM_STEP_NUM_TASKS";
constexpr const char* kMpirunSize = "OMPI_COMM_WORLD_SIZE";
constexpr const char* kAllocationTasks = "SLURM_NTASKS";

Result<std::optional<LaunchedTasks>> Read(const Environment& env, const char* variable) {
  const std::optional<std::string> text = env(variable);
  if (!text.has_value()) return std::optional<LaunchedTasks>();
  const LaunchedTasks found = {variable, ToNumber<int>(*text).value_or(0)};
  if (found.tasks < 1) {
    return Status(ErrorKind::kConfig,
                  StrCat(variable, ": expected a number of tasks >= 1, found '", *text, "'"));
  }
  return std::optional(found);
}

Status Compare(int mpi_size, const LaunchedTasks& launched) {
  if (mpi_size == launched.tasks) return Status::Ok();
  std::string text = StrCat("world size: MPI has ", Counted(mpi_size, "rank"), " but ",
                            launched.variable, "=", launched.tasks);
  if (mpi_size == 1) {
    text += "; this rank cannot see the others: start with `srun --mpi=pmix`";
  } else {
    text += "; start all ranks with one `srun --mpi=pmix` or one `mpirun`";
  }
  return {ErrorKind::kConfig, std::move(text)};
}

}  // namespace

Environment SnapshotLauncher(const Environment& env) {
  std::map<std::string, std::string> values;
  for (const char* name : {kStepTasks, kMpirunSize, kAllocationTasks}) {
    if (const std::optional<std::string> value = env(name)) values[name] = *value;
  }
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

Result<std::optional<LaunchedTasks>> FindLaunchedTasks(const Environment& env) {
  for (const char* variable : {kMpirunSize, kStepTasks, kAllocationTasks}) {
    GACCD_ASSIGN_OR_RETURN(std::optional<LaunchedTasks> found, Read(env, variable));
    if (found.has_value()) return found;
  }
  return std::optional<LaunchedTasks>();
}

Status CheckLauncher(const Environment& env) {
  GACCD_ASSIGN_OR_RETURN(const std::optional<LaunchedTasks> step, Read(env, kStepTasks));
  if (!step.has_value() || step->tasks == 1) return Status::Ok();
  // Every launcher that connects the tasks of a step sets one of these.
  constexpr std::array kConnections = {"PMIX_RANK", "PMI_RANK", "PMI_FD", kMpirunSize};
  for (const char* connection : kConnections) {
    if (env(connection).has_value()) return Status::Ok();
  }
  return {ErrorKind::kConfig,
          StrCat("this SLURM step has ", step->tasks, " tasks (", kStepTasks,
                 ") but connects them to no MPI (PMIX_RANK is not set); start with "
                 "`srun --mpi=pmix`")};
}

Status CheckWorld(int mpi_size, const Environment& env) {
  GACCD_ASSIGN_OR_RETURN(const std::optional<LaunchedTasks> launched, FindLaunchedTasks(env));
  return launched.has_value() ? Compare(mpi_size, *launched) : Status::Ok();
}

}  // namespace gaccd
