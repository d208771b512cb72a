#include "daemon/launch/launch.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/world_check.h"
#include "collectives/comm/nccl_settings.h"
#include "daemon/config/flag_values.h"
#include "daemon/config/job_text.h"
#include "daemon/config/make_plan.h"
#include "daemon/config/target_schedule.h"
#include "daemon/device/cpu/onednn.h"

namespace gaccd {

namespace {

bool HasLauncher(const Environment& env) {
  return env("SLURM_STEP_ID").has_value() || env("OMPI_COMM_WORLD_SIZE").has_value() ||
         env("PMIX_RANK").has_value();
}

Status CheckAsserted(const char* flag, const std::optional<std::int64_t>& asserted,
                     std::int64_t found, const char* what) {
  if (!asserted || *asserted == found) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(flag, "=", *asserted, ", but ", what, " of this run: ", found,
                                     "; leave the flag out or start as many")};
}

// Ranks per node, or 0 if it differs between nodes.
std::int64_t RanksPerNode(const Topology& topology) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(topology.nodes));
  for (const int node : topology.node_of) ++counts[static_cast<std::size_t>(node)];
  const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
  return *least == *most ? *most : 0;
}

}  // namespace

AttemptSource IdentifyAttempt(const SlurmEnvironment& slurm) {
  AttemptSource source{.attempt_dir = ProcessEnvironment()("GACCD_ATTEMPT_DIR")};
  if (source.attempt_dir == "") source.attempt_dir.reset();  // as not set
  if (slurm.in_job()) source.slurm_job_id = std::to_string(*slurm.job_id);
  source.step_id = slurm.step_id.value_or(-1);
  source.restart_count = static_cast<int>(std::min<std::int64_t>(slurm.restart_count, 999'999));
  return source;
}

std::vector<LibraryVersions> LinkedLibraries() {
  const auto version = [](const std::array<int, 3>& numbers) {
    return LibraryVersion{numbers[0], numbers[1], numbers[2]};
  };
  const OneDnnNumbers onednn = OneDnnVersionNumbers();
  std::vector<LibraryVersions> libraries = {
      {.name = "oneDNN", .compiled = version(onednn.compiled), .loaded = version(onednn.loaded)}};
  const MpiNumbers mpi = MpiVersionNumbers();
  if (mpi.loaded[0] > 0) {
    libraries.push_back(
        {.name = "MPI", .compiled = version(mpi.compiled), .loaded = version(mpi.loaded)});
  }
  return libraries;
}

Result<Ranks> JoinRanks(const Flags& flags, const Environment& env) {
  Ranks ranks;
  GACCD_RETURN_IF_ERROR(CheckNotOlder(LinkedLibraries()));
  GACCD_ASSIGN_OR_RETURN(ranks.slurm, SlurmEnvironment::Read(env));
  GACCD_RETURN_IF_ERROR(CheckNodes(flags.nodes, flags.gpus_per_node, ranks.slurm));
  // Before MPI, which without descriptors ends the process with its own message.
  GACCD_ASSIGN_OR_RETURN(const auto launched, FindLaunchedTasks(env));
  GACCD_RETURN_IF_ERROR(
      CheckDescriptors(RaiseDescriptorLimit(), HasLauncher(env) && launched ? launched->tasks : 1));
  if (!HasLauncher(env)) {
    // In a batch script without srun every node would train its own model.
    GACCD_RETURN_IF_ERROR(CheckWorld(1, env));
    ranks.comm = MakeSingle();
    return ranks;
  }
  const std::chrono::seconds bound(flags.bound);
  GACCD_ASSIGN_OR_RETURN(ranks.session, MpiSession::Start({}, env));
  GACCD_ASSIGN_OR_RETURN(ranks.comm,
                         MakeMpi(*ranks.session, {.bound = bound, .interrupt = ranks.interrupt}));
  return ranks;
}

Result<Plan> PlanForWorld(const Job& job, const Flags& flags, const Communicator& comm) {
  const Topology& topology = comm.topology();
  const std::int64_t per_node = RanksPerNode(topology);
  GACCD_RETURN_IF_ERROR(CheckAsserted("--nodes", flags.nodes, topology.nodes, "nodes"));
  if (per_node > 0) {
    GACCD_RETURN_IF_ERROR(
        CheckAsserted("--gpus-per-node", flags.gpus_per_node, per_node, "ranks per node"));
  } else if (flags.gpus_per_node) {
    return Status(ErrorKind::kConfig, StrCat("--gpus-per-node=", *flags.gpus_per_node,
                                             " but the nodes have different numbers of ranks"));
  }
  // If nodes have different numbers of ranks, every rank counts as a node.
  GACCD_ASSIGN_OR_RETURN(PlanRequest request,
                         ToPlanRequest(job.batch, per_node > 0 ? topology.nodes : comm.size(),
                                       std::max<std::int64_t>(per_node, 1)));
  request.stages = job.pipeline.stages;
  if (flags.speed) {
    GACCD_ASSIGN_OR_RETURN(const SpeedFlag speed, ParseSpeedFlag(*flags.speed));
    GACCD_ASSIGN_OR_RETURN(request.speeds, RankSpeeds(speed, topology.hosts));
  }
  if (flags.micro_batch_auto) {  // the largest update determines the memory
    GACCD_ASSIGN_OR_RETURN(request.target_batch, LargestTarget(job.batch));
  }
  GACCD_ASSIGN_OR_RETURN(Plan plan, PlanBeforeChoice(request, flags));
  if (flags.strict) GACCD_RETURN_IF_ERROR(RequireExact(job.batch, plan));
  return plan;
}

std::int64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  const rlim_t soft = std::exchange(limit.rlim_cur, limit.rlim_max);
  const rlim_t found = setrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : soft;
  constexpr rlim_t kMax = std::numeric_limits<std::int64_t>::max();  // for RLIM_INFINITY
  return static_cast<std::int64_t>(std::min(found, kMax));
}

Status CheckDescriptors(std::int64_t limit, std::int64_t ranks) {
  const std::int64_t needed = DescriptorsNeeded(ranks);
  if (limit >= needed) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("a process may have ", limit, " files open at once, expected at least ", needed,
                 " for ", Counted(ranks, "rank"),
                 ": raise the hard limit (ulimit -Hn; LimitNOFILE= of slurmd.service)")};
}

void SetNcclEnvironment(const Flags& flags, bool deterministic) {
  const Environment environment = ProcessEnvironment();
  const auto set = [&](const EnvironmentSettings& settings) {
    ApplySettings(MissingSettings(settings, environment));
  };
  set(NcclSettings());
  if (deterministic) set(NcclDeterministicSettings());
  if (flags.allow_gpu_sharing) set(NcclSharingSettings(environment, HostAndProcess()));
}

}  // namespace gaccd
