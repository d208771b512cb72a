#include "daemon/train/run.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/process_memory.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_proto.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/stop/clocks.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/announce.h"
#include "daemon/train/done_marker.h"
#include "daemon/train/launch.h"
#include "daemon/train/nccl_environment.h"
#include "daemon/train/rank_status.h"
#include "daemon/train/run_checkpoints.h"
#include "daemon/train/run_stages.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/storage_limits.h"

namespace gaccd {
namespace {

// All ranks of a stopped run exit with the same status; after other errors of a training some may
// be lost.
bool StopsAllRanks(const Status& status) {
  return status.kind() == ErrorKind::kNoRequeue || status.kind() == ErrorKind::kTempFail ||
         status.kind() == ErrorKind::kInterrupted;
}

RankStatus TrainingStatus(Status status) {
  const bool shared = status.ok() || StopsAllRanks(status);
  return {std::move(status), shared};
}

// From the data to the first update.
RankStatus SetUpTraining(const Flags& flags, Session& session, RunReporter& reporter) {
  Communicator& comm = session.comm;
  const auto clocks = Clocks::Compare(comm, Clocks::SystemSeconds);
  if (!clocks.ok()) return {clocks.status()};
  const std::string other_time = clocks->Warning(comm.topology().hosts);
  if (comm.rank() == 0 && !other_time.empty()) LogWarning(other_time);
  if (Status claimed = AcquireLease(flags, session); !claimed.ok()) return {claimed};
  if (Agreement fits = CheckSaveWeights(flags, comm); !fits.status.ok()) {
    return SharedStatus(std::move(fits));
  }
  if (session.was_done) {
    // Stopped from here on, it is to be requeued.
    const Status removed = comm.rank() == 0 ? RemoveDone(*flags.run_dir) : Status::Ok();
    if (Agreement all = AgreeOn(comm, removed); !all.status.ok()) {
      return SharedStatus(std::move(all));
    }
  }
  reporter.ReportStage("data");
  Agreement opened = OpenTraining(flags, session);
  if (!opened.status.ok()) return SharedStatus(std::move(opened));
  session.stops.emplace(comm, StopOptionsOf(flags, session, *clocks));
  if (Status stop = session.stops->AfterStage("while the data was opened"); !stop.ok()) {
    return TrainingStatus(std::move(stop));
  }
  reporter.ReportStage("device");
  if (Status chosen = SelectDevice(flags, session.setup->job, session); !chosen.ok()) {
    return {chosen};
  }
  reporter.ReportStage("memory");
  Agreement prepared = AgreeOn(comm, PrepareTrainer(flags, session));
  if (!prepared.status.ok()) return SharedStatus(std::move(prepared));
  if (Agreement loaded = LoadInitWeights(flags, session); !loaded.status.ok()) {
    return SharedStatus(std::move(loaded));
  }
  reporter.ReportStage("checkpoint");
  Agreement resumed = AgreeOn(comm, ResumeRun(flags, session));
  return SharedStatus(std::move(resumed));
}

RankStatus TrainAllUpdates(const Flags& flags, Session& session, RunReporter& reporter) {
  if (RankStatus ready = SetUpTraining(flags, session, reporter); !ready.status.ok()) return ready;
  Setup& setup = *session.setup;
  auto checkpointer = StartCheckpointer(flags, session, reporter);
  if (checkpointer.ok() && *checkpointer != nullptr) setup.trainer->PlanMemoryOf(**checkpointer);
  Announce(flags, session, reporter);
  if (session.comm.rank() == 0) {
    for (const std::string& warning :
         ScheduleWarnings(setup.job, setup.plan.lr_factor(), setup.trainer->schedule().updates())) {
      LogWarning(warning);
    }
    if (setup.job.evaluation.keep_best && checkpointer.ok() && *checkpointer == nullptr) {
      LogWarning("evaluation.keep_best: this run saves no checkpoints");
    }
  }
  if (!checkpointer.ok()) return {std::move(checkpointer).status()};
  if (Status stop = session.stops->AfterStage("before the first update"); !stop.ok()) {
    return TrainingStatus(std::move(stop));
  }
  if (*checkpointer != nullptr) {
    session.stops->AddPeriodicWork(
        [&checkpointer = **checkpointer] { return checkpointer.Poll(); });
  }
  TrainingSummary summary;
  setup.trainer->SetPeerWatch(session.peers.get());
  setup.trainer->SetStops(&*session.stops);
  if (Status status = setup.trainer->Run(reporter, &summary, checkpointer->get()); !status.ok()) {
    // What the helper is at is not waited for: the other ranks are gone.
    if (*checkpointer != nullptr && PeersAreLost(session)) (*checkpointer)->Abandon();
    if (summary.failed_together) return {std::move(status)};
    return TrainingStatus(std::move(status));
  }
  Agreement agreement =
      AgreeOn(session.comm, session.comm.rank() == 0
                                ? WriteResults(flags, session, summary, checkpointer->get())
                                : Status::Ok());
  if (agreement.status.ok()) Conclude(flags, session, summary, reporter);
  return SharedStatus(std::move(agreement));
}

// An exception that ended the start would leave no verdict but an internal error.
RankStatus TrainWithinMemory(const Flags& flags, Session& session, RunReporter& reporter) {
  try {
    return TrainAllUpdates(flags, session, reporter);
  } catch (const std::bad_alloc&) {
    return {NoMemory("the data, the model or their copies", 0)};
  }
}

// First the ownership of the run folder: a rank that cannot get it exits at once, before it opens
// data, and the owner always writes a verdict there.
RankStatus RunTraining(const Flags& flags, Result<Job> read_job, Session& session) {
  Communicator& comm = session.comm;
  const auto plan = read_job.ok() ? PlanForWorld(*read_job, flags, comm) : read_job.status();
  Agreement read = AgreeOn(comm, plan.status());
  if (!read.status.ok()) return SharedStatus(std::move(read));
  session.setup = Setup{*std::move(read_job), *plan, nullptr};
  const Job& job = session.setup->job;
  if (Status same = CheckAllTheSame(flags, job, comm); !same.ok()) return {same};
  if (Status resolved = ResolveJob(comm, &session.setup->job); !resolved.ok()) return {resolved};
  if (flags.run_dir) {
    const auto done =
        FindDone(comm, flags, job, session.setup->plan, session.slurm.restart_count > 0);
    if (!done.ok()) return {done.status()};
    session.was_done = done->next == DoneRun::Next::kTrainOn;
    if (done->next == DoneRun::Next::kNothing) {
      if (comm.rank() == 0) std::printf("%s\n", Printable(done->text).c_str());
      return {};
    }
  }
  if (flags.run_dir) {
    const Status stopped = comm.rank() == 0 ? CheckNotStopped(*flags.run_dir) : Status::Ok();
    if (Agreement all = AgreeOn(comm, stopped); !all.status.ok()) {
      return SharedStatus(std::move(all));
    }
  }
  // Before the folder is made, and said where it then has its log.
  std::vector<std::string> warnings;
  if (comm.rank() == 0) {
    warnings = PlaceWarnings(flags);
    std::string launcher = LauncherWarning(ProcessEnvironment(), comm.size(), flags);
    if (!launcher.empty()) warnings.push_back(std::move(launcher));
  }
  auto reporter =
      RunReporter::Start(comm, {.run_dir = flags.run_dir.value_or(""),
                                .run_name = job.name,
                                .job_text = JobText(job),
                                .plan_text = PlanTxtpb(session.setup->plan),
                                .attempt = AttemptOf(session.slurm),
                                .log_every = job.log_every,
                                .group_access = flags.group_access,
                                .guard = session.guard,
                                .end_limit = LimitOfVerdict(std::chrono::seconds(flags.bound))});
  if (!reporter.ok()) return {std::move(reporter).status()};
  for (const std::string& warning : warnings) LogWarning(warning);
  RankStatus rank_status = TrainWithinMemory(flags, session, **reporter);
  (*reporter)->Finish(rank_status.status, FactsOf(rank_status.status, session));
  AddStorageProblem((*reporter)->close_status(), rank_status);
  return rank_status;
}

}  // namespace

RanksOutcome RunTrain(const Flags& flags, const ErrorPrinter& print) {
  auto job = ReadTrainingJob(flags);
  SetNcclEnvironment(flags, job.ok() && job->deterministic);
  std::unique_ptr<VerdictGuard> guard;
  if (flags.run_dir) guard = VerdictGuard::Start(ProcessEnvironment());
  // Early: a signal during the start is not lost.
  const auto stop_signals = ParseSignals(flags.stop_signals);
  if (!stop_signals.ok()) return {stop_signals.status()};
  auto signals = StopSignals::Install(*stop_signals);
  if (!signals.ok()) return {std::move(signals).status()};
  auto ranks = JoinRanks(flags, ProcessEnvironment());
  if (!ranks.ok()) return {std::move(ranks).status()};
  Communicator& comm = *ranks->comm;
  Session session{.slurm = ranks->slurm,
                  .guard = guard.get(),
                  .comm = comm,
                  .signals = signals->get(),
                  .between_gpus = {},
                  .device = {},
                  .setup = {}};
  auto peers =
      PeerWatch::Start(comm, ranks->interrupt, std::chrono::seconds(flags.heartbeat_seconds));
  if (!peers.ok()) return {std::move(peers).status()};
  session.peers = std::move(*peers);
  RankStatus rank_status = RunTraining(flags, std::move(job), session);
  return ExitRank(std::move(rank_status), session, print);
}

}  // namespace gaccd
