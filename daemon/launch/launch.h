// Launch: how this process finds the other ranks, and which plan follows from their number.
#pragma once

#include <memory>
#include <vector>

#include "collectives/base/environment.h"
#include "collectives/base/result.h"
#include "collectives/bootstrap/mpi_session.h"
#include "collectives/comm/communicator.h"
#include "daemon/config/flags.h"
#include "daemon/config/job.h"
#include "daemon/device/cuda/versions.h"
#include "daemon/plan/plan.h"
#include "daemon/rundir/run_folder.h"
#include "slurm/environment.h"

namespace gaccd {

// MPI and oneDNN: linked, so that the loader finds some version of them.
[[nodiscard]] std::vector<LibraryVersions> LinkedLibraries();

// The session must outlive the communicator, hence the order.
struct Ranks {
  SlurmEnvironment slurm;
  std::unique_ptr<MpiSession> session;  // null: this process was started without a launcher
  std::shared_ptr<Interrupt> interrupt = std::make_shared<Interrupt>();  // of comm's waits
  std::unique_ptr<Communicator> comm;
};

// What SLURM and the batch script call this attempt.
[[nodiscard]] AttemptSource AttemptOf(const SlurmEnvironment& slurm);

// Under srun or mpirun: all ranks, over MPI. Without either: one rank, and MPI is not started.
// Inside a step with several tasks this never gives a world of one: see CheckWorld(). kUnavailable
// when a library of LinkedLibraries() is older than the one compiled with, kConfig when too few
// files may be open at once. Raises the soft limit of those to the hard one.
Result<Ranks> JoinRanks(const Flags& flags, const Environment& env);

// The plan of this world; of --micro-batch=auto the one in one micro-step, until the memory is
// known. --nodes and --gpus-per-node are assertions here: kConfig when they are
// not what was found, with both values.
Result<Plan> PlanForWorld(const Job& job, const Flags& flags, const Communicator& comm);

}  // namespace gaccd
