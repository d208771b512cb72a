// Launch: connects this process to the other ranks, and makes the plan for their number.
#pragma once

#include <cstdint>
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

// MPI and oneDNN, which are linked dynamically, so their versions may vary.
[[nodiscard]] std::vector<LibraryVersions> LinkedLibraries();

// The session must outlive the communicator, hence the order.
struct Ranks {
  SlurmEnvironment slurm;
  std::unique_ptr<MpiSession> session;  // null: started without a launcher
  std::shared_ptr<Interrupt> interrupt = std::make_shared<Interrupt>();  // ends comm's waits
  std::unique_ptr<Communicator> comm;
};

// Identifies the attempt from the variables of SLURM and the batch script.
[[nodiscard]] AttemptSource IdentifyAttempt(const SlurmEnvironment& slurm);

// Under srun or mpirun: connects all ranks over MPI. Otherwise: one rank without MPI. Never makes a
// world of one inside a step with several tasks: see CheckWorld(). kUnavailable if a library of
// LinkedLibraries() is older than the compiled version, kConfig if the limit of open files is too
// low. Raises the soft limit to the hard one.
Result<Ranks> JoinRanks(const Flags& flags, const Environment& env);

// The plan of this world; for --micro-batch=auto the plan with one micro-step, until the memory is
// known. --nodes and --gpus-per-node are assertions here: kConfig, with both values, if they differ
// from the actual numbers.
Result<Plan> PlanForWorld(const Job& job, const Flags& flags, const Communicator& comm);

// File descriptors: the limit of this process, and how many it needs.

// Raises the soft limit to the hard one, and returns the resulting limit. Call once, early.
std::int64_t RaiseDescriptorLimit();

// The maximum over the ranks, which is that of rank 0: for every other rank a connection for the
// heartbeat and one for MPI on another node or a watch on its process on this node; and 64 for
// everything else: MPI itself, data, checkpoints, logs (a CPU rank has 18 of them open).
[[nodiscard]] constexpr std::int64_t DescriptorsNeeded(std::int64_t ranks) {
  return 64 + 2 * (ranks - 1);
}

// kConfig, with both numbers, if the limit is too low.
[[nodiscard]] Status CheckDescriptors(std::int64_t limit, std::int64_t ranks);

// Environment variables for NCCL; set before this process has threads.

// Sets NcclSettings(), and settings for reproducible results (`deterministic`, of the job) and for
// ranks that share a GPU (--allow-gpu-sharing). Variables set by the user are kept. Not
// thread-safe, as setenv.
void SetNcclEnvironment(const Flags& flags, bool deterministic);

}  // namespace gaccd
