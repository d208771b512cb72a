#include "daemon/train/run.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "collectives/base/seconds.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "collectives/bootstrap/same_on_all.h"
#include "collectives/comm/nccl_comm.h"
#include "daemon/checkpoint/run_state.h"
#include "daemon/config/help.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_proto.h"
#include "daemon/optim/optimizer.h"
#include "daemon/telemetry/log.h"
#include "daemon/telemetry/run_reporter.h"
#include "daemon/train/announce.h"
#include "daemon/train/clocks.h"
#include "daemon/train/done_marker.h"
#include "daemon/train/ending.h"
#include "daemon/train/launch.h"
#include "daemon/train/nccl_environment.h"
#include "daemon/train/open_data.h"
#include "daemon/train/session.h"
#include "daemon/train/storage_limits.h"
#include "daemon/train/weights.h"

namespace gaccd {
namespace {

SavePolicy PolicyOf(const Flags& flags) {
  return {.every_updates = flags.save_every_updates,
          .every_seconds = flags.save_every_seconds.value_or(kDefaultSaveSeconds)};
}

Status CheckCheckpointFlags(const Flags& flags) {
  if (flags.run_dir) return Status::Ok();
  const bool asked = flags.save_every_updates > 0 || flags.save_every_seconds.value_or(0) > 0;
  const bool resumes = flags.resume != "auto" && flags.resume != "never";
  if (!asked && !resumes) return Status::Ok();
  return {ErrorKind::kUsage, "checkpoints need --run-dir=DIR: they are kept in DIR/ckpt"};
}

// What every rank can do alone, and quickly: job and plan.
Result<Setup> ReadAlone(const Flags& flags, const Communicator& comm) {
  if (!flags.job) return Status(ErrorKind::kUsage, "train needs --job=FILE");
  GACCD_RETURN_IF_ERROR(CheckCheckpointFlags(flags));
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  GACCD_ASSIGN_OR_RETURN(const Plan plan, PlanForWorld(job, flags, comm));
  return Setup{std::move(job), plan, nullptr};
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
                                         .gpu_sharing = flags.allow_gpu_sharing}));
  return Status::Ok();
}

// Where the timed choices of algorithms are kept from run to run, or nothing.
std::string CacheFolder(const Environment& environment) {
  if (const auto own = environment("GACCD_CACHE_DIR")) return *own;
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache + "/gaccd";
  if (const auto home = environment("HOME")) return *home + "/.cache/gaccd";
  return {};
}

AttemptSource AttemptOf(const SlurmEnvironment& slurm) {
  AttemptSource source{.attempt_dir = ProcessEnvironment()("GACCD_ATTEMPT_DIR")};
  if (slurm.in_job()) source.slurm_job_id = std::to_string(*slurm.job_id);
  source.step_id = slurm.step_id.value_or(-1);
  source.restart_count = static_cast<int>(std::min<std::int64_t>(slurm.restart_count, 999'999));
  return source;
}

std::string CheckpointFolder(const Flags& flags) { return *flags.run_dir + "/ckpt"; }

CheckpointOptions CheckpointsOf(const Flags& flags) {
  return {.folder = CheckpointFolder(flags),
          .group_access = flags.group_access,
          .keep = {.newest = flags.keep, .every = flags.keep_every},
          .fail_limit = flags.failed_saves};
}

// Before anybody looks what the run goes on from: a run that ends just now has committed its last
// checkpoint, or commits no more. Nothing without checkpoints. Collective.
Status ClaimTogether(const Flags& flags, Session& session) {
  if (!flags.run_dir || !PolicyOf(flags).on()) return Status::Ok();
  const AttemptSource attempt = AttemptOf(session.slurm);
  const OwnerName me = MakeOwnerName(attempt.slurm_job_id.value_or(StrCat("local-", ::getpid())),
                                     attempt.restart_count, attempt.step_id);
  GACCD_ASSIGN_OR_RETURN(session.right,
                         CheckpointWriter::Claim(session.comm, CheckpointsOf(flags), me));
  return Status::Ok();
}

// An attempt that SLURM requeued goes on from its own checkpoints, also where --resume names
// another one or none: that was where the first attempt began. Collective.
Status ResumeTogether(const Flags& flags, Session& session) {
  if (!flags.run_dir) return Status::Ok();
  const auto start = std::chrono::steady_clock::now();
  Trainer& trainer = *session.setup->trainer;
  ResumeSource source{.folder = CheckpointFolder(flags), .from = flags.resume, .job_since = {}};
  if (session.slurm.restart_count > 0 && session.right) source.job_since = session.right->job_since;
  GACCD_ASSIGN_OR_RETURN(const ResumePoint point,
                         FindResumePoint(session.comm, trainer.saved_run(), source));
  for (const std::string& note : point.notes) {
    session.resume_notes.push_back(StrCat("checkpoint passed over: ", note));
  }
  if (!point.state) return Status::Ok();
  const std::string changed = ChangedSince(point.state->manifest, session.setup->job);
  if (!changed.empty()) {
    session.resume_notes.push_back(StrCat("the job has changed since the checkpoint: ", changed));
  }
  GACCD_RETURN_IF_ERROR(trainer.Resume(*point.state));
  const Generation& from = point.state->generation;
  session.resumed = {.generation = from.name(),
                     .folder = point.folder,
                     .step = from.step,
                     .micro_step = from.micro_step,
                     .writer_epoch = from.epoch,
                     .samples_total = point.state->manifest.cursor.samples,
                     .passed_over = static_cast<std::int64_t>(point.notes.size())};
  for (const BufferSpec& buffer : point.state->manifest.buffers) {
    const std::int64_t parts = buffer.per_rank ? point.state->manifest.world() : 1;
    session.resumed->bytes += static_cast<std::int64_t>(buffer.bytes) * parts;
  }
  session.resumed->dur_s = SecondsSince(start);
  return Status::Ok();
}

Status PrepareTogether(const Flags& flags, Session& session) {
  EngineChoice choice{.device = session.device.device};
  if (session.device.gpu) {
    choice.gpu = session.device.gpu->device;
    choice.gpu_sharing = flags.allow_gpu_sharing;
    // Times taken beside another rank on the same GPU are nobody's.
    if (!choice.gpu_sharing) choice.choices_folder = CacheFolder(ProcessEnvironment());
  }
  Trainer& trainer = *session.setup->trainer;
  trainer.SetGuards({.on_nonfinite = flags.on_nonfinite, .digest_every = flags.digest_every});
  GACCD_RETURN_IF_ERROR(trainer.Prepare(choice, session.between_gpus.get()));
  if (flags.init_weights) return trainer.LoadWeights(*flags.init_weights);
  return Status::Ok();
}

// Over all ranks.
double CheckpointBytes(const Session& session) {
  const std::int64_t parameters = session.setup->trainer->model().layout().size();
  const std::int64_t state = StateElements(session.setup->job.optimizer, parameters);
  return static_cast<double>(parameters + state) * sizeof(float);
}

// Null without checkpoints. Collective.
Result<std::unique_ptr<Saver>> StartSaver(const Flags& flags, Session& session,
                                          RunReporter& reporter) {
  if (!session.right) return std::unique_ptr<Saver>();
  Trainer& trainer = *session.setup->trainer;
  CheckpointOptions checkpoints = CheckpointsOf(flags);
  checkpoints.end_patience = LimitOfLastSave(BoundOf(flags), CheckpointBytes(session));
  checkpoints.give_up = [&stops = *session.stops] {
    if (stops.asked_twice()) return GiveUp::kAsked;
    return stops.out_of_time() ? GiveUp::kNoTime : GiveUp::kNo;
  };
  return Saver::Start(session.comm, trainer.saved_run(), trainer.engine(),
                      {.checkpoints = std::move(checkpoints),
                       .policy = PolicyOf(flags),
                       .program = StrCat("gaccd ", GaccdVersion(), " ", GaccdRevision()),
                       .tell = [&reporter](const SaveRecord& save) { reporter.Saved(save); }},
                      *std::move(session.right), trainer.first_update());
}

// On rank 0.
Status WriteResults(const Flags& flags, Setup& setup, const TrainingSummary& summary) {
  const auto limit = LimitOfResults(BoundOf(flags));
  const unsigned mode = flags.group_access ? kGroupMayRead.file : kFileMode;
  if (flags.save_weights) {
    GACCD_ASSIGN_OR_RETURN(std::vector<float> parameters, setup.trainer->Parameters());
    GACCD_RETURN_IF_ERROR(
        WriteWithin(limit, *flags.save_weights,
                    [path = *flags.save_weights, layout = setup.trainer->model().layout(),
                     values = std::move(parameters),
                     mode] { return SaveParameters(path, layout, values, mode); }));
  }
  if (!flags.run_dir) return Status::Ok();
  return WriteWithin(limit, *flags.run_dir,
                     [run_dir = *flags.run_dir, mode,
                      text = StrCat(summary.updates, " updates, ", summary.samples, " samples")] {
                       return MarkDone(run_dir, text, mode);
                     });
}

Agreement EndTogether(const Flags& flags, Setup& setup, const TrainingSummary& summary,
                      Communicator& comm) {
  return AgreeOn(comm, comm.rank() == 0 ? WriteResults(flags, setup, summary) : Status::Ok());
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

Ending SayDone(const std::string& run_dir, const std::string& text, const Communicator& comm) {
  if (comm.rank() == 0) {
    std::printf("this run is complete (%s): nothing to do; remove %s/DONE to go on\n",
                Printable(text).c_str(), Printable(run_dir).c_str());
  }
  return {};
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
  Agreement agreement = EndTogether(flags, setup, summary, session.comm);
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
    const auto done = FindDone(comm, *flags.run_dir);
    if (!done.ok()) return {done.status()};
    if (!done->empty()) return SayDone(*flags.run_dir, *done, comm);
  }
  auto reporter = RunReporter::Start(comm, {.run_dir = flags.run_dir.value_or(""),
                                            .run_name = job.name,
                                            .job_text = JobText(job),
                                            .plan_text = PlanTxtpb(session.setup->plan),
                                            .attempt = AttemptOf(session.slurm),
                                            .log_every = job.log_every,
                                            .group_access = flags.group_access,
                                            .end_limit = LimitOfVerdict(BoundOf(flags))});
  if (!reporter.ok()) return {std::move(reporter).status()};
  Ending ending = TrainTogether(flags, session, **reporter);
  (*reporter)->Finish(ending.status, FactsOf(ending.status, session));
  AddStorageProblem((*reporter)->not_closed(), ending);
  return ending;
}

}  // namespace

RanksOutcome RunTrain(const Flags& flags, const ErrorPrinter& print) {
  SetNcclEnvironment(flags);
  // Early: a signal during the start is not lost.
  auto signals = StopSignals::Install(flags.stop_signals);
  if (!signals.ok()) return {std::move(signals).status()};
  auto ranks = JoinRanks(flags, ProcessEnvironment());
  if (!ranks.ok()) return {std::move(ranks).status()};
  Communicator& comm = *ranks->comm;
  Session session{.slurm = ranks->slurm,
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
