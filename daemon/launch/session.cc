#include "daemon/launch/session.h"

#include <algorithm>
#include <chrono>
#include <thread>

#include "collectives/base/thread.h"
#include "collectives/comm/nccl_comm.h"
#include "collectives/comm/nccl_settings.h"
#include "daemon/config/help.h"
#include "daemon/config/job_checks.h"
#include "daemon/config/job_text.h"

namespace gaccd {
namespace {

// The loss of a rank that others detect first is reported to this rank shortly after.
constexpr std::chrono::milliseconds kReportDelay{300};
constexpr std::chrono::milliseconds kForTheMessage{1'000};

std::optional<CommFailure> FindFailure(const Session& session) {
  if (session.between_gpus) {
    if (auto failure = session.between_gpus->failure()) return failure;
  }
  return session.comm.failure();
}

std::vector<MissingRank> FindMissingRanks(const Session& session) {
  const auto failure = FindFailure(session);
  return failure ? failure->missing : std::vector<MissingRank>();
}

bool Explains(const MissingRank& missing) {
  return missing.absence == Absence::kBehind || missing.absence == Absence::kStalled ||
         missing.absence == Absence::kSilent;
}

// A deadline names the late ranks. For ranks that ended or gave up, the heartbeat may know more.
void WaitForHeartbeat(const Session& session) {
  const auto start = std::chrono::steady_clock::now();
  while (session.peers->beats() && !session.peers->all_lost_known()) {
    const std::vector<MissingRank> missing = FindMissingRanks(session);
    const bool none_yet = session.peers->lost().empty();
    if (none_yet && (!FindFailure(session) || std::ranges::any_of(missing, Explains))) return;
    if (none_yet && std::chrono::steady_clock::now() - start > kReportDelay) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

// From the heartbeat, otherwise from the communicator, in order of loss. Ranks that gave up were
// notified of another rank.
std::vector<Suspect> LostRanks(const Session& session) {
  std::vector<Suspect> suspects;
  const auto add = [&](int rank, bool ended, std::int64_t memory_bytes) {
    if (std::ranges::count(suspects, rank, &Suspect::rank) > 0) return;
    suspects.push_back({.rank = rank,
                        .host = session.comm.topology().hosts[static_cast<std::size_t>(rank)],
                        .ended = ended,
                        .memory_bytes = memory_bytes});
  };
  const std::vector<heartbeat::LostRank> lost = session.peers->lost();
  for (const heartbeat::LostRank& one : lost) {
    add(one.rank, one.absence == Absence::kEnded, std::int64_t{one.last.memory_kib} * 1024);
  }
  for (const MissingRank& missing : FindMissingRanks(session)) {
    const bool ended = missing.absence == Absence::kEnded;
    if (ended || (lost.empty() && Explains(missing))) add(missing.rank, ended, 0);
  }
  return suspects;
}

// Gives the rank that writes the verdict, for which RunReporter::Finish() has waited, the time to
// write it, then STATUS.json and the last event. Rank 0, or rank 1 if that is lost, usually is that
// rank and does not wait.
void WaitForVerdictWriter(const Session& session) {
  constexpr std::chrono::milliseconds kTimeToWrite{700};
  const int usual_writer = std::ranges::count(LostRanks(session), 0, &Suspect::rank) > 0 ? 1 : 0;
  if (session.comm.rank() != usual_writer) std::this_thread::sleep_for(kTimeToWrite);
}

}  // namespace

Result<Session> Session::Join(const Flags& flags) {
  GACCD_ASSIGN_OR_RETURN(Ranks ranks, JoinRanks(flags, ProcessEnvironment()));
  Session session{.ranks = std::move(ranks)};
  GACCD_ASSIGN_OR_RETURN(session.peers,
                         PeerWatch::Start(session.comm, session.ranks.interrupt,
                                          std::chrono::seconds(flags.heartbeat_seconds)));
  return session;
}

Status Session::CheckAllTheSame(const Flags& flags, const Job& job) {
  GACCD_RETURN_IF_ERROR(CheckSameOnAllRanks(comm, "binary", BuildId()));
  return CheckSameOnAllRanks(comm, "flags", JobDigest(job, flags));
}

Status Session::SelectDevice(const Flags& flags, const Job& job) {
  const GpuProbe probe = job.device == Device::kCpu ? GpuProbe() : ProbeGpus(comm.size());
  GACCD_ASSIGN_OR_RETURN(device, ChooseDevice(comm, job.device, flags.allow_gpu_sharing, probe));
  if (device.device == Device::kCpu) {
    GACCD_RETURN_IF_ERROR(CheckCpuNumerics(GetNumerics(job), device.text));
    if (job.precision != Precision::kBF16) return Status::Ok();
    GACCD_ASSIGN_OR_RETURN(bf16, CheckBf16OnCpus(comm, DetectCpuBf16(), flags.allow_emulation));
    return Status::Ok();
  }
  GACCD_RETURN_IF_ERROR(CheckGpuNumerics(GetNumerics(job), device.text));
  GACCD_RETURN_IF_ERROR(CheckModelOnGpu(job));
  GACCD_ASSIGN_OR_RETURN(const DnnWork work, FindDnnWork(job));
  if (work.attention || work.convolution) {
    GACCD_ASSIGN_OR_RETURN(dnn, ChooseDnn(comm, work, job.precision, FindDnnLibrary()));
  }
  if (comm.size() == 1) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(between_gpus,
                         MakeNccl(comm, {.comm = {.bound = std::chrono::seconds(flags.bound)},
                                         .device = device.gpu->device,
                                         .gpu_sharing = flags.allow_gpu_sharing,
                                         .windows = NcclWindowsWanted(ProcessEnvironment())}));
  return Status::Ok();
}

EngineChoice Session::MakeEngineChoice(const Flags& flags) const {
  EngineChoice choice{.device = device.device};
  if (device.gpu) {
    choice.gpu = device.gpu->device;
    choice.gpu_sharing = flags.allow_gpu_sharing;
    choice.dnn = dnn.library;
    choice.reduction_multiprocessors = NcclMaxCtas(ProcessEnvironment());
  }
  return choice;
}

bool PeersAreLost(const Session& session) {
  return !session.peers->lost().empty() || FindFailure(session).has_value();
}

FailureFacts CollectFacts(const Status& outcome, const Session& session,
                          std::int64_t memory_planned_bytes) {
  FailureFacts facts;
  if (outcome.ok()) return facts;
  facts.memory_planned_bytes = memory_planned_bytes;
  facts.rank = session.comm.rank();
  WaitForHeartbeat(session);
  facts.suspects = LostRanks(session);
  for (const MissingRank& missing : FindMissingRanks(session)) {
    if (missing.absence == Absence::kGaveUp) facts.gave_up.push_back(missing.rank);
  }
  facts.hosts = session.comm.topology().hosts;
  const auto lost = session.peers->lost();
  facts.silent = !lost.empty() && lost.front().absence == Absence::kSilent;
  if (const auto failure = FindFailure(session)) {
    facts.collective = Name(failure->entry.operation);
    facts.sequence = static_cast<std::int64_t>(failure->entry.sequence);
  }
  return facts;
}

VerbOutcome ExitRank(RankStatus rank_status, Session& session, const ErrorPrinter& print) {
  Communicator& comm = session.comm;
  if (!rank_status.status.ok() && PeersAreLost(session)) rank_status.shared = false;
  if (rank_status.status.ok() || rank_status.shared) session.peers->Goodbye();
  if (rank_status.status.ok()) return {};
  // stderr may be a file on a file system that does not respond; the others wait for this rank.
  const auto print_in_time = [&print](const Status& status) {
    (void)CallWithin(kForTheMessage, [print, status] { print(status); });
  };
  if (rank_status.shared) {
    if (comm.rank() == rank_status.reporting_rank) print_in_time(rank_status.status);
    return {std::move(rank_status.status), true};
  }
  const int code = static_cast<int>(rank_status.status.kind());
  rank_status.status =
      std::move(rank_status.status).WithContext(RankOnHost(comm.rank(), comm.topology().hosts));
  print_in_time(rank_status.status);
  WaitForVerdictWriter(session);
  session.device_comm().Abort(code);
  return {std::move(rank_status.status), true};
}

}  // namespace gaccd
