// Checks that the world seen by MPI is the one that the launcher started. Otherwise every rank
// could be a world of size 1 and train its own model. Pure functions: the environment is passed in.
#pragma once

#include <optional>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"

namespace gaccd {

// A copy of the launcher's variables. Open MPI sets some of them itself during MPI_Init, and a
// world of one would then seem correct.
[[nodiscard]] Environment SnapshotLauncher(const Environment& env);

// The number of ranks that the launcher started, by the first of these variables that is set:
//   OMPI_COMM_WORLD_SIZE    mpirun; first, because in a SLURM job mpirun starts one daemon per node
//                           as the SLURM step
//   SLURM_STEP_NUM_TASKS    the step of srun
//   SLURM_NTASKS            the allocation, if none of the above exists (a batch script)
struct LaunchedTasks {
  const char* variable = "";
  int tasks = 0;
};
// Empty: no variable is set. kConfig: a value is not a number >= 1.
[[nodiscard]] Result<std::optional<LaunchedTasks>> FindLaunchedTasks(const Environment& env);

// Before MPI_Init: kConfig if a SLURM step has several tasks but provides no MPI (`srun` without
// --mpi=pmix); MPI_Init would then end the process or make a world of one.
[[nodiscard]] Status CheckLauncher(const Environment& env);

// After MPI_Init: kConfig, with both values, if MPI's size differs from FindLaunchedTasks().
[[nodiscard]] Status CheckWorld(int mpi_size, const Environment& env);

}  // namespace gaccd
