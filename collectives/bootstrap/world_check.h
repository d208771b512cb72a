// Is the world that MPI sees the one that the launcher started? Each rank that finds itself alone
// would otherwise train a model of its own. Pure functions: the environment is passed in.
#pragma once

#include <optional>
#include <string>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"

namespace gaccd {

// The launcher's variables as they are now. Open MPI sets some of them itself during MPI_Init, and
// a world of one would then confirm itself.
[[nodiscard]] Environment SnapshotOfLauncher(const Environment& env);

// How many ranks the launcher started, by the first of these that is set:
//   OMPI_COMM_WORLD_SIZE    mpirun; before the step, because inside a SLURM job the step is that of
//                           mpirun's daemons, one a node
//   SLURM_STEP_NUM_TASKS    the step of srun
//   SLURM_NTASKS            the allocation, where none of the above exists (a batch script)
struct LaunchedTasks {
  const char* variable = "";
  int tasks = 0;
};
// Nothing set: no value. kConfig: a value is not a number >= 1.
[[nodiscard]] Result<std::optional<LaunchedTasks>> FindLaunchedTasks(const Environment& env);

// Before MPI_Init: kConfig when a SLURM step has several tasks but offers no MPI to them
// (`srun` without --mpi=pmix), where MPI_Init would end the process or make a world of one.
[[nodiscard]] Status CheckLauncher(const Environment& env);

// After MPI_Init: kConfig, with both values, when MPI's size differs from FindLaunchedTasks().
[[nodiscard]] Status CheckWorld(int mpi_size, const Environment& env);

}  // namespace gaccd
