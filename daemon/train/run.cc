#include "daemon/train/run.h"

#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/bootstrap/same_on_all.h"
#include "collectives/comm/nccl_comm.h"
#include "collectives/comm/nccl_settings.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_proto.h"
#include "daemon/model/safetensors.h"
#include "daemon/optim/optimizer.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/stop/clocks.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/announce.h"
#include "daemon/train/done_marker.h"
#include "daemon/train/ending.h"
#include "daemon/train/final_weights.h"
#include "daemon/train/launch.h"
#include "daemon/train/nccl_environment.h"
#include "daemon/train/open_data.h"
#include "daemon/train/run_checkpoints.h"
#include "daemon/train/session.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/storage_limits.h"

namespace gaccd {
namespace {

// What every rank can do alone, and quickly: job and plan.
Result<Setup> ReadAlone(const Flags& flags, const Communicator& comm) {
  if (!flags.job) return Status(ErrorKind::kUsage, "train needs --job=FILE");
  GACCD_RETURN_IF_ERROR(CheckCheckpointFlags(flags));
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  GACCD_ASSIGN_OR_RETURN(const Plan plan, PlanForWorld(job, flags, comm));
  return Setup{std::move(job), plan, nullptr};
}

// Rank 0 will write it. Collective.
Agreement CheckSaveWeights(const Flags& flags, Communicator& comm) {
  Status fits;
  if (flags.save_weights && comm.rank() == 0) {
    fits = CheckWeightsFile(*flags.save_weights).WithContext("--save-weights");
  }
  return AgreeOn(comm, fits);
}

// What may take long: data and model. Collective.
Agreement OpenTogether(const Flags& flags, Session& session) {
  Setup& setup = *session.setup;
  const BadRecordRules rules{
      .policy = flags.on_bad_record, .quota = flags.bad_record_quota, .seed = setup.job.seed};
  TrainingData data;
  Agreement opened = OpenDataTogether(session.comm, setup.job.data, rules, &data);
  if (!opened.status.ok()) return opened;
  auto trainer = Trainer::Open(session.comm, setup.job, setup.plan, std::move(data));
  if (trainer.ok()) setup.trainer = *std::move(trainer);
  return AgreeOn(session.comm, trainer.status());
}

std::chrono::seconds BoundOf(const Flags& flags) {
  return std::chrono::seconds(flags.bound_seconds);
}

Status CheckAllTheSame(const Flags& flags, const Job& job, Communicator& comm) {
  GACCD_RETURN_IF_ERROR(CheckSameOnAllRanks(comm, "binary", BuildId()));
  return CheckSameOnAllRanks(comm, "flags", JobDigest(job, flags));
}

// Collective; the same result on every rank.
Status ChooseTogether(const Flags& flags, Session& session) {
  const Job& job = session.setup->job;
  Communicator& comm = session.comm;
  const GpuProbe probe = job.device == Device::kCpu ? GpuProbe() : ProbeGpus(comm.size());
  GACCD_ASSIGN_OR_RETURN(session.device,
                         ChooseDevice(comm, job.device, flags.allow_gpu_sharing, probe));
  if (session.device.device == Device::kCpu) {
    return CheckNumericsOfCpu(job.numerics, session.device.text);
  }
  GACCD_RETURN_IF_ERROR(CheckModelOnGpu(job));
  if (comm.size() == 1) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(session.between_gpus,
                         MakeNccl(comm, {.comm = {.bound = BoundOf(flags)},
                                         .device = session.device.gpu->device,
                                         .gpu_sharing = flags.allow_gpu_sharing,
                                         .windows = NcclWindowsWanted(ProcessEnvironment())}));
  return Status::Ok();
}

// Where the timed choices of algorithms are kept from run to run, or nothing.
std::string CacheFolder(const Environment& environment) {
  if (const auto own = environment("GACCD_CACHE_DIR")) return *own;
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache + "/gaccd";
  if (const auto home = environment("HOME")) return *home + "/.cache/gaccd";
  return {};
}

Status PrepareTogether(const Flags& flags, Session& session) {
  EngineChoice choice{.device = session.device.device};
  if (session.device.gpu) {
    choice.gpu = session.device.gpu->device;
    choice.gpu_sharing = flags.allow_gpu_sharing;
    choice.reduction_multiprocessors = NcclMaxCtas(ProcessEnvironment());
    // Times taken beside another rank on the same GPU say nothing.
    choice.time_algorithms = flags.time_algorithms && !choice.gpu_sharing;
    if (choice.time_algorithms) choice.choices_folder = CacheFolder(ProcessEnvironment());
  }
  Trainer& trainer = *session.setup->trainer;
  trainer.SetGuards({.on_nonfinite = flags.on_nonfinite, .digest_every = flags.digest_every});
  GACCD_RETURN_IF_ERROR(trainer.Prepare(choice, session.between_gpus.get()));
  if (flags.init_weights) return trainer.LoadWeights(*flags.init_weights);
  return Status::Ok();
}

// On rank 0.
Status WriteResults(const Flags& flags, Session& session, const TrainingSummary& summary,
                    const Saver* saver) {
  const Setup& setup = *session.setup;
  const auto limit = LimitOfResults(BoundOf(flags));
  const unsigned mode = flags.group_access ? kGroupMayRead.file : kFileMode;
  if (flags.save_weights) {
    GACCD_ASSIGN_OR_RETURN(std::vector<float> parameters, setup.trainer->Parameters());
    GACCD_RETURN_IF_ERROR(
        SaveFinalWeights(setup.trainer->model().layout(), std::move(parameters),
                         {.path = *flags.save_weights,
                          .mode = mode,
                          .limit = limit,
                          .checkpoint = CheckpointAfter(summary.updates, flags, session, saver),
                          .run_dir = flags.run_dir.value_or("")}));
  }
  if (!flags.run_dir) return Status::Ok();
  return WriteWithin(limit, *flags.run_dir,
                     [run_dir = *flags.run_dir, job = setup.job, mode,
                      text = StrCat(summary.updates, " updates, ", summary.samples, " samples")] {
                       return MarkDone(run_dir, text, job, mode);
                     });
}

// Until a save was measured: a second for its fixed cost, and a rank's bytes over a slow disk. Too
// little does no harm: a save that is cut off leaves the one before.
std::chrono::duration<double> GuessSave(const Session& session) {
  constexpr double kBytesPerSecond = 200e6;
  const double bytes = CheckpointBytes(session);
  return std::chrono::duration<double>(1 + bytes / session.comm.size() / kBytesPerSecond);
}

StopOptions StopOptionsOf(const Flags& flags, const Session& session, const Clocks& clocks) {
  std::optional<Clocks::Steady::time_point> job_end;
  if (session.slurm.end_time_s) job_end = clocks.Deadline(*session.slurm.end_time_s);
  return {.signals = session.signals,
          .run_dir = flags.run_dir.value_or(""),
          .job_end = job_end,
          .term_budget = std::chrono::seconds(flags.term_budget_seconds),
          .checkpoints = session.right.has_value(),
          .warn = [](const std::string& text) { LogWarning(text); },
          .save_guess = GuessSave(session)};
}

// All ranks of a stopped run leave alike; after other errors of a training some may be lost.
bool LeavesTogether(const Status& status) {
  return status.kind() == ErrorKind::kNoRequeue || status.kind() == ErrorKind::kTempFail ||
         status.kind() == ErrorKind::kInterrupted;
}

Ending Left(Status status) {
  const bool shared = status.ok() || LeavesTogether(status);
  return {std::move(status), shared};
}

// From the data to the first update.
Ending GetReady(const Flags& flags, Session& session) {
  Communicator& comm = session.comm;
  const auto clocks = Clocks::Compare(comm, Clocks::SystemSeconds);
  if (!clocks.ok()) return {clocks.status()};
  const std::string other_time = clocks->Warning(comm.topology().hosts);
  if (comm.rank() == 0 && !other_time.empty()) LogWarning(other_time);
  if (Status claimed = ClaimTogether(flags, session); !claimed.ok()) return {claimed};
  if (Agreement fits = CheckSaveWeights(flags, comm); !fits.status.ok()) {
    return Shared(std::move(fits));
  }
  if (session.was_done) {
    // Stopped from here on, it is to be requeued.
    const Status removed = comm.rank() == 0 ? RemoveDone(*flags.run_dir) : Status::Ok();
    if (Agreement all = AgreeOn(comm, removed); !all.status.ok()) return Shared(std::move(all));
  }
  Agreement opened = OpenTogether(flags, session);
  if (!opened.status.ok()) return Shared(std::move(opened));
  session.stops.emplace(comm, StopOptionsOf(flags, session, *clocks));
  if (Status stop = session.stops->AfterStage("while the data was opened"); !stop.ok()) {
    return Left(std::move(stop));
  }
  if (Status chosen = ChooseTogether(flags, session); !chosen.ok()) return {chosen};
  Agreement prepared = AgreeOn(comm, PrepareTogether(flags, session));
  if (!prepared.status.ok()) return Shared(std::move(prepared));
  Agreement resumed = AgreeOn(comm, ResumeTogether(flags, session));
  return Shared(std::move(resumed));
}

Ending TrainTogether(const Flags& flags, Session& session, RunReporter& reporter) {
  if (Ending ready = GetReady(flags, session); !ready.status.ok()) return ready;
  Setup& setup = *session.setup;
  auto saver = StartSaver(flags, session, reporter);
  if (saver.ok() && *saver != nullptr) setup.trainer->PlanMemoryOf(**saver);
  Announce(flags, session, reporter);
  if (session.comm.rank() == 0) {
    for (const std::string& warning :
         ScheduleWarnings(setup.job, setup.plan.lr_factor(), setup.trainer->schedule().updates())) {
      LogWarning(warning);
    }
  }
  if (!saver.ok()) return {std::move(saver).status()};
  if (Status stop = session.stops->AfterStage("before the first update"); !stop.ok()) {
    return Left(std::move(stop));
  }
  if (*saver != nullptr) session.stops->AlsoDo([&saver = **saver] { return saver.Poll(); });
  TrainingSummary summary;
  setup.trainer->SetPeerWatch(session.peers.get());
  setup.trainer->SetStops(&*session.stops);
  if (Status status = setup.trainer->Run(reporter, &summary, saver->get()); !status.ok()) {
    // What the helper is at is not waited for: the other ranks are gone.
    if (*saver != nullptr && PeersAreLost(session)) (*saver)->Abandon();
    if (summary.failed_together) return {std::move(status)};
    return Left(std::move(status));
  }
  Agreement agreement = AgreeOn(
      session.comm, session.comm.rank() == 0 ? WriteResults(flags, session, summary, saver->get())
                                             : Status::Ok());
  if (agreement.status.ok()) Conclude(summary, setup.trainer->memory(), reporter);
  return Shared(std::move(agreement));
}

// First the right to the run folder: who may not have it leaves at once, before he opens data, and
// who has it leaves a verdict there, whatever comes.
Ending TrainOn(const Flags& flags, Session& session) {
  Communicator& comm = session.comm;
  auto setup = ReadAlone(flags, comm);
  Agreement read = AgreeOn(comm, setup.status());
  if (!read.status.ok()) return Shared(std::move(read));
  session.setup = *std::move(setup);
  const Job& job = session.setup->job;
  if (Status same = CheckAllTheSame(flags, job, comm); !same.ok()) return {same};
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
  // Before the folder is made, and said where it then has its log.
  std::vector<std::string> warnings;
  if (comm.rank() == 0) warnings = PlaceWarnings(flags);
  auto reporter = RunReporter::Start(comm, {.run_dir = flags.run_dir.value_or(""),
                                            .run_name = job.name,
                                            .job_text = JobText(job),
                                            .plan_text = PlanTxtpb(session.setup->plan),
                                            .attempt = AttemptOf(session.slurm),
                                            .log_every = job.log_every,
                                            .group_access = flags.group_access,
                                            .guard = session.guard,
                                            .end_limit = LimitOfVerdict(BoundOf(flags))});
  if (!reporter.ok()) return {std::move(reporter).status()};
  for (const std::string& warning : warnings) LogWarning(warning);
  Ending ending = TrainTogether(flags, session, **reporter);
  (*reporter)->Finish(ending.status, FactsOf(ending.status, session));
  AddStorageProblem((*reporter)->not_closed(), ending);
  return ending;
}

}  // namespace

RanksOutcome RunTrain(const Flags& flags, const ErrorPrinter& print) {
  SetNcclEnvironment(flags);
  std::unique_ptr<VerdictGuard> guard;
  if (flags.run_dir) guard = VerdictGuard::Start(ProcessEnvironment());
  // Early: a signal during the start is not lost.
  auto signals = StopSignals::Install(flags.stop_signals);
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
  Ending ending = TrainOn(flags, session);
  if (!ending.status.ok() && PeersAreLost(session)) ending.shared = false;
  if (ending.status.ok() || ending.shared) session.peers->Goodbye();
  if (ending.status.ok()) return {};
  if (ending.shared) {
    if (comm.rank() == ending.speaker) print(ending.status);
    return {std::move(ending.status), true};
  }
  const int code = static_cast<int>(ending.status.kind());
  ending.status =
      std::move(ending.status).WithContext(RankOnHost(comm.rank(), comm.topology().hosts));
  print(ending.status);
  WaitForSpeaker(session);
  (session.between_gpus ? *session.between_gpus : comm).Abort(code);
  return {std::move(ending.status), true};
}

}  // namespace gaccd
