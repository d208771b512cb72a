#include "daemon/train/training_run.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <exception>
#include <functional>
#include <new>
#include <utility>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_proto.h"
#include "daemon/config/revision.h"
#include "daemon/config/target_schedule.h"
#include "daemon/data/class_names.h"
#include "daemon/data/formats/column_names.h"
#include "daemon/data/several_files.h"
#include "daemon/data/tokenizer.h"
#include "daemon/launch/launch.h"
#include "daemon/models/graph_file.h"
#include "daemon/rundir/run_folder.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/done_marker.h"
#include "daemon/train/final_weights.h"
#include "daemon/train/memory_choice.h"
#include "daemon/train/open_data.h"
#include "daemon/train/run_options.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/storage_limits.h"
#include "daemon/train/weight_source.h"
#include "daemon/weights/safetensors.h"

namespace gaccd {
namespace {

// All ranks of a stopped run exit with the same status; after other errors some may be lost.
bool StopsAllRanks(const Status& status) {
  return status.kind() == ErrorKind::kNoRequeue || status.kind() == ErrorKind::kTempFail ||
         status.kind() == ErrorKind::kInterrupted;
}

// Work of a StopAgreement, which outlives what the work uses.
class PeriodicWork {
 public:
  PeriodicWork(StopAgreement& stops, std::function<Status()> work) : stops_(stops) {
    stops_.SetPeriodicWork(std::move(work));
  }
  ~PeriodicWork() { stops_.SetPeriodicWork(nullptr); }
  PeriodicWork(const PeriodicWork&) = delete;
  PeriodicWork& operator=(const PeriodicWork&) = delete;

 private:
  StopAgreement& stops_;
};

RankStatus TrainingStatus(Status status) {
  const bool shared = status.ok() || StopsAllRanks(status);
  return {std::move(status), shared};
}

}  // namespace

RankStatus TrainingRun::RunStages(std::initializer_list<Stage> stages) {
  for (const Stage stage : stages) {
    if (RankStatus done = (this->*stage)(); !done.status.ok()) return done;
  }
  return {};
}

RankStatus TrainingRun::Run(Result<Job> job) {
  if (RankStatus planned = MakePlan(std::move(job)); !planned.status.ok()) return planned;
  if (RankStatus ready = RunStages({&TrainingRun::ResolveJob, &TrainingRun::CheckFolder});
      !ready.status.ok() || is_complete_) {
    return ready;
  }
  return RunInFolder();
}

RankStatus TrainingRun::MakePlan(Result<Job> job) {
  auto plan = job.ok() ? PlanForWorld(*job, flags_, comm_) : job.status();
  if (Agreement read = AgreeOn(comm_, plan.status()); !read.status.ok()) return read;
  job_ = *std::move(job);
  plan_ = *std::move(plan);
  return session_.CheckAllTheSame(flags_, job_);
}

RankStatus TrainingRun::ResolveJob() {
  job_ = WithAbsolutePaths(job_);
  GACCD_ASSIGN_OR_RETURN(job_.data.class_name,
                         NamesFromRankZero(comm_, [this]() -> Result<std::vector<std::string>> {
                           GACCD_ASSIGN_OR_RETURN(ClassNames classes, ReadClassNames(job_));
                           return std::move(classes.names);
                         }));
  GACCD_ASSIGN_OR_RETURN(job_.data.column_name,
                         NamesFromRankZero(comm_, [this] { return ReadColumnNames(job_); }));
  const std::size_t bytes = JobText(job_).size();
  if (bytes <= kMaxTextBytes) return {};
  return Status(ErrorKind::kData, StrCat("the job with the names of its classes and columns takes ",
                                         bytes, " bytes; expected at most ", kMaxTextBytes,
                                         ": column names may be omitted"));
}

RankStatus TrainingRun::CheckFolder() {
  if (!flags_.run_dir) return {};
  GACCD_ASSIGN_OR_RETURN(const DoneRun done, FindDone(comm_, flags_, job_, *plan_,
                                                      session_.ranks.slurm.restart_count > 0));
  was_complete_ = done.next == DoneRun::Next::kContinue;
  is_complete_ = done.next == DoneRun::Next::kNothing;
  if (is_complete_) {
    if (comm_.rank() == 0) std::printf("%s\n", Printable(done.text).c_str());
    return {};
  }
  return AgreeOn(comm_, comm_.rank() == 0 ? CheckNotStopped(*flags_.run_dir) : Status::Ok());
}

RankStatus TrainingRun::RunInFolder() {
  // Collected before the folder is created, and logged once it contains the log.
  std::vector<std::string> warnings;
  if (comm_.rank() == 0) {
    warnings = PlaceWarnings(flags_);
    std::string launcher = LauncherWarning(ProcessEnvironment(), comm_.size(), flags_);
    if (!launcher.empty()) warnings.push_back(std::move(launcher));
  }
  GACCD_ASSIGN_OR_RETURN(
      reporter_,
      RunReporter::Start(comm_, {.run_dir = flags_.run_dir.value_or(""),
                                 .run_name = job_.name,
                                 .job_text = flags_.micro_batch_auto ? "" : JobText(job_),
                                 .plan_text = flags_.micro_batch_auto ? "" : PlanTxtpb(*plan_),
                                 .attempt = IdentifyAttempt(session_.ranks.slurm),
                                 .log_every = job_.log_every,
                                 .group_access = flags_.group_access,
                                 .guard = guard_,
                                 .end_limit = VerdictLimit(std::chrono::seconds(flags_.bound)),
                                 .patience = MakeOwnerPatience(flags_)}));
  for (const std::string& warning : warnings) LogWarning(warning);
  RankStatus ended = TrainWithinMemory();
  reporter_->Finish(ended.status, CollectFacts(ended.status, session_,
                                               trainer_ ? trainer_->memory().planned : 0));
  AddStorageProblem(reporter_->close_status(), ended);
  reporter_.reset();
  return ended;
}

RankStatus TrainingRun::TrainWithinMemory() {
  try {
    RankStatus ready = RunStages(
        {&TrainingRun::CompareClocks, &TrainingRun::AcquireLease, &TrainingRun::CheckSaveWeights,
         &TrainingRun::RemoveDoneMarker, &TrainingRun::OpenData, &TrainingRun::SelectDevice,
         &TrainingRun::ChooseMicroBatch, &TrainingRun::MakeTrainer, &TrainingRun::Resume});
    return ready.status.ok() ? Train() : ready;
  } catch (const std::bad_alloc&) {
    return {NoMemory("the data, the model or their copies", 0), /*of_all=*/false};
  } catch (const std::exception& error) {  // from a library; MpiSession would wait for other ranks
    return {Status(ErrorKind::kInternal, error.what()), /*of_all=*/false};
  }
}

RankStatus TrainingRun::CompareClocks() {
  GACCD_ASSIGN_OR_RETURN(clocks_, Clocks::Compare(comm_, Clocks::SystemSeconds));
  const std::string other_time = clocks_->Warning(comm_.topology().hosts);
  if (comm_.rank() == 0 && !other_time.empty()) LogWarning(other_time);
  return {};
}

RankStatus TrainingRun::AcquireLease() {
  if (!flags_.run_dir || !MakeSavePolicy(flags_).on()) return {};
  const AttemptSource attempt = IdentifyAttempt(session_.ranks.slurm);
  const OwnerName me = MakeOwnerName(attempt.slurm_job_id.value_or(StrCat("local-", ::getpid())),
                                     attempt.restart_count, attempt.step_id);
  GACCD_ASSIGN_OR_RETURN(lease_,
                         CheckpointWriter::Claim(comm_, MakeCheckpointOptions(flags_, job_), me));
  return {};
}

RankStatus TrainingRun::CheckSaveWeights() {
  Status fits;
  if (flags_.save_weights && comm_.rank() == 0) {
    fits = CheckWeightsFile(*flags_.save_weights).WithContext("--save-weights");
  }
  return AgreeOn(comm_, fits);
}

// If stopped from here on, the run is to be requeued.
RankStatus TrainingRun::RemoveDoneMarker() {
  if (!was_complete_) return {};
  return AgreeOn(comm_, comm_.rank() == 0 ? RemoveDone(*flags_.run_dir) : Status::Ok());
}

RankStatus TrainingRun::OpenData() {
  reporter_->Report(StageRecord{"data"});
  const Status fits = comm_.rank() == 0
                          ? CheckTokenizers(job_, FindWeightsFile(flags_.init_weights.value_or("")))
                          : Status::Ok();
  if (Agreement all = AgreeOn(comm_, fits); !all.status.ok()) return all;
  const BadRecordRules rules{
      .policy = flags_.on_bad_record, .quota = flags_.bad_record_quota, .seed = job_.seed};
  TrainingData data;
  Agreement opened = OpenSharedData(comm_, job_, rules, &data);
  if (!opened.status.ok()) return opened;
  const auto integers = data.train->has_integer_features();
  if (!job_.data.integer_features) job_.data.integer_features = integers;
  opened = AgreeOn(comm_, CheckSameStorage(job_.data.integer_features, integers, "data.train",
                                           "data.integer_features of the job"));
  if (!opened.status.ok()) return opened;
  auto inputs = TrainingInputs::Make(comm_, job_, *plan_, std::move(data));
  if (inputs.ok()) inputs_.emplace(*std::move(inputs));
  opened = AgreeOn(comm_, inputs.status());
  if (!opened.status.ok()) return opened;
  checkpoint_bytes_ = inputs_->checkpoint_bytes();
  stops_.emplace(comm_, MakeStopOptions(flags_, session_.ranks.slurm, *clocks_, signals_,
                                        lease_.has_value(), checkpoint_bytes_ / comm_.size()));
  return TrainingStatus(stops_->AfterStage("while the data was opened"));
}

RankStatus TrainingRun::SelectDevice() {
  reporter_->Report(StageRecord{"device"});
  GACCD_RETURN_IF_ERROR(session_.SelectDevice(flags_, job_));
  const std::string& warning = session_.device.warning;
  if (comm_.rank() == 0 && !warning.empty()) LogWarning(warning);
  return {};
}

TrainerOptions TrainingRun::MakeTrainerOptions() {
  return {.guards = MakeTrainGuards(flags_),
          .choice = session_.MakeEngineChoice(flags_),
          .device_comm = &session_.device_comm(),
          .loads = MakeLoadChanges(flags_)};
}

RankStatus TrainingRun::ChooseMicroBatch() {
  if (!flags_.micro_batch_auto) return {};
  reporter_->Report(StageRecord{"micro-batch"});
  const TrainerOptions options = MakeTrainerOptions();
  const PlannedTraining training{.job = job_,
                                 .model = inputs_->model,
                                 .data = inputs_->data,
                                 .schedule = inputs_->schedule,
                                 .saves = lease_.has_value(),
                                 .any_load = options.loads.any()};
  GACCD_ASSIGN_OR_RETURN(ChosenPlan chosen, ChooseForTraining(comm_, session_.device_comm(),
                                                              training, plan_->request(),
                                                              {.replica = {},
                                                               .optimizer = job_.optimizer,
                                                               .shard = job_.shard,
                                                               .numerics = GetNumerics(job_),
                                                               .choice = options.choice},
                                                              MemoryFlag(flags_)));
  GACCD_ASSIGN_OR_RETURN(plan_, FirstPlan(job_.batch, chosen.choice.plan()));
  memory_limit_ = chosen.limit.text;
  job_.batch.micro = plan_->request().micro_batch;
  job_.batch.recompute = plan_->request().recompute;
  auto inputs = TrainingInputs::Make(comm_, job_, *plan_, std::move(inputs_->data));
  if (inputs.ok()) inputs_.emplace(*std::move(inputs));
  if (Agreement all = AgreeOn(comm_, inputs.status()); !all.status.ok()) return all;
  return AgreeOn(comm_, reporter_->WriteInputs(JobText(job_), PlanTxtpb(*plan_)));
}

RankStatus TrainingRun::MakeTrainer() {
  reporter_->Report(StageRecord{"memory"});
  TrainerOptions options = MakeTrainerOptions();
  SetTiming(flags_, ProcessEnvironment(), &options.choice);
  auto trainer = Trainer::Make(comm_, *std::move(inputs_), options);
  if (trainer.ok()) trainer_ = *std::move(trainer);
  return AgreeOn(comm_, trainer.status());
}

RankStatus TrainingRun::LoadInitWeights() {
  const auto* graph = std::get_if<GraphSpec>(&job_.model.architecture);
  if (!flags_.init_weights && graph == nullptr) return {};
  const std::string path =
      flags_.init_weights ? *flags_.init_weights : GraphWeightsFile(graph->path);
  LoadedWeights loaded;
  Agreement all = LoadWeightsTogether(comm_, trainer_->engine(), trainer_->model(), job_,
                                      {.path = path, .rules = MakeWeightRules(flags_)}, &loaded);
  if (comm_.rank() == 0) init_weights_ = std::move(loaded.report);
  return all;
}

RankStatus TrainingRun::Train() {
  const auto started = StartCheckpointer();
  if (started.ok()) trainer_->AddPlannedMemory(**started);
  Announce();
  WarnAboutMistakes(/*saves=*/!started.ok() || (*started)->saves());
  GACCD_RETURN_IF_ERROR(started.status());
  RunCheckpointer& checkpointer = **started;
  if (Status stop = stops_->AfterStage("before the first update"); !stop.ok()) {
    return TrainingStatus(std::move(stop));
  }
  const PeriodicWork polls(*stops_, [&checkpointer] { return checkpointer.Poll(); });
  TrainingSummary summary;
  trainer_->SetPeerWatch(session_.peers.get());
  trainer_->SetStops(&*stops_);
  if (Status status = trainer_->Run(*reporter_, &summary, &checkpointer); !status.ok()) {
    // Do not wait for the helper thread: the other ranks are gone.
    if (PeersAreLost(session_)) checkpointer.Abandon();
    if (summary.failed_together) return status;
    return TrainingStatus(std::move(status));
  }
  std::vector<float> parameters;
  if (flags_.save_weights) {
    auto trained = trainer_->FinalParameters();
    if (!trained.ok()) return {trained.status(), /*of_all=*/false};
    parameters = *std::move(trained);
  }
  Agreement written = WorkTogether(comm_, [&](const TickFunction& tick) {
    return comm_.rank() == 0 ? WriteResults(summary, checkpointer, std::move(parameters), tick)
                             : Status::Ok();
  });
  if (written.status.ok()) Conclude(summary);
  return written;
}

Result<std::unique_ptr<RunCheckpointer>> TrainingRun::StartCheckpointer() {
  if (!lease_) return std::make_unique<RunCheckpointer>(comm_);
  CheckpointOptions checkpoints = MakeCheckpointOptions(flags_, job_);
  checkpoints.end_patience = SaveLimit(std::chrono::seconds(flags_.bound), checkpoint_bytes_);
  checkpoints.give_up = [this] {
    if (stops_->stop_now_requested()) return GiveUp::kStopRequested;
    return stops_->out_of_time() ? GiveUp::kNoTime : GiveUp::kNo;
  };
  return RunCheckpointer::Start(
      comm_, trainer_->saved_run(), trainer_->engine(),
      {.checkpoints = std::move(checkpoints),
       .policy = MakeSavePolicy(flags_),
       .program = StrCat("gaccd ", GaccdVersion(), " ", GaccdRevision()),
       .on_save = [this](const SaveRecord& save) { reporter_->Report(save); }},
      *std::move(lease_), trainer_->first_update());
}

Status TrainingRun::WriteResults(const TrainingSummary& summary,
                                 const RunCheckpointer& checkpointer,
                                 std::vector<float> final_parameters, const TickFunction& tick) {
  const std::chrono::seconds bound(flags_.bound);
  const unsigned mode = flags_.group_access ? kGroupMayRead.file : kFileMode;
  if (flags_.save_weights) {
    GACCD_RETURN_IF_ERROR(
        SaveFinalWeights(trainer_->model().layout(), std::move(final_parameters),
                         {.path = *flags_.save_weights,
                          .mode = mode,
                          .metadata = DataMetadata(job_.data),
                          .bound = bound,
                          .tick = tick,
                          .checkpoint = CheckpointAfter(summary.updates, checkpointer),
                          .run_dir = flags_.run_dir.value_or(""),
                          .copies = trainer_->model().weight_names().copies}));
  }
  if (!flags_.run_dir) return Status::Ok();
  return WriteWithin(
      SaveLimit(bound, 0), *flags_.run_dir, tick,
      [run_dir = *flags_.run_dir, job = job_, mode,
       text = StrCat(Counted(summary.updates, "update"), ", ", summary.samples, " samples",
                     summary.stopped_early.empty() ? "" : "; ", summary.stopped_early)] {
        return MarkDone(run_dir, text, job, mode);
      });
}

std::string TrainingRun::CheckpointAfter(std::int64_t updates,
                                         const RunCheckpointer& checkpointer) const {
  const std::optional<Generation>& saved = checkpointer.last_saved();
  if (saved && saved->step == updates && saved->micro_step == 0) {
    return saved->PathIn(MakeCheckpointOptions(flags_, job_).folder);
  }
  if (!resumed_ || resumed_->step != updates || resumed_->micro_step != 0) return {};
  return StrCat(resumed_->folder, "/", resumed_->generation);
}

VerbOutcome RunTrain(const Flags& flags, const ErrorPrinter& print) {
  auto job = ReadTrainingJob(flags);
  SetNcclEnvironment(flags, job.ok() && job->deterministic);
  std::unique_ptr<VerdictGuard> guard;
  if (flags.run_dir) guard = VerdictGuard::Start(ProcessEnvironment());
  // Early, so that a signal during the start is not lost.
  const auto stop_signals = ParseSignals(flags.stop_signals);
  if (!stop_signals.ok()) return {stop_signals.status()};
  auto signals = StopSignals::Install(*stop_signals);
  if (!signals.ok()) return {signals.status()};
  auto session = Session::Join(flags);
  if (!session.ok()) return {session.status()};
  TrainingRun run(flags, *session, guard.get(), signals->get());
  return ExitRank(run.Run(std::move(job)), *session, print);
}

}  // namespace gaccd
