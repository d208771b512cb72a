#include "daemon/train/trainer.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/checkpoint/run_state.h"
#include "daemon/data/index_source.h"
#include "daemon/data/sample_order.h"
#include "daemon/device/host_buffer.h"
#include "daemon/optim/schedule.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/update.h"
#include "daemon/train/weights.h"

namespace gaccd {
namespace {

// The engine holds some of them, and half of the others are read in one go.
constexpr int kSlotsForDevices = 16;

// The sizes of this rank's micro-batches: at most two a plan, as they fall with the step.
void AddMicroBatches(const Plan& plan, int rank, std::set<std::int64_t>* sizes) {
  for (const std::int64_t step : {std::int64_t{0}, plan.accum_steps() - 1}) {
    const std::int64_t size = plan.MicroBatch(rank, step);
    if (size > 0) sizes->insert(size);
  }
}

}  // namespace

Trainer::Trainer(Communicator& comm, const Job& job, const Plan& plan, TrainingData data,
                 Model model, const UpdateSchedule& schedule)
    : comm_(comm),
      times_(comm.rank(), comm.size()),
      control_words_(kStopWordCount + times_.elements()),
      job_(job),
      plan_(plan),
      program_(PlainAccumulation(plan)),
      train_(std::move(data.train)),
      eval_(std::move(data.eval)),
      model_(std::move(model)),
      schedule_(schedule) {
  if (eval_ != nullptr) evaluator_.emplace(comm, *eval_, schedule, plan.request().micro_batch);
}

Result<std::unique_ptr<Trainer>> Trainer::Open(Communicator& comm, const Job& job, const Plan& plan,
                                               const BadRecordRules& bad_records) {
  GACCD_ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(job.data, bad_records));
  return Open(comm, job, plan, std::move(data));
}

Result<std::unique_ptr<Trainer>> Trainer::Open(Communicator& comm, const Job& job, const Plan& plan,
                                               TrainingData data) {
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(job.model, data.train->spec()));
  GACCD_RETURN_IF_ERROR(model.ApplyRules(job.optimizer));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         ScheduleOf(job, plan.effective_batch(), data.train->size()));
  GACCD_RETURN_IF_ERROR(CheckSchedule(job.schedule));
  return std::unique_ptr<Trainer>(
      new Trainer(comm, job, plan, std::move(data), std::move(model), schedule));
}

Status Trainer::Prepare(const EngineChoice& choice, Communicator* device_comm) {
  GACCD_RETURN_IF_ERROR(CheckSameRecords());
  GACCD_ASSIGN_OR_RETURN(const ReplicaOptions replica, MakeReplicaOptions());
  GACCD_ASSIGN_OR_RETURN(memory_.process, ResidentBytes());
  GACCD_ASSIGN_OR_RETURN(
      engine_, MakeEngine(device_comm == nullptr ? comm_ : *device_comm, model_,
                          {.replica = replica,
                           .optimizer = job_.optimizer,
                           .numerics = job_.numerics,
                           .choice = choice,
                           .control_word_count = control_words_.size(),
                           .outlive_nonfinite = guards_.on_nonfinite != OnNonfinite::kStop,
                           .measure_code = true}));
  const EngineMemory planned = engine_->memory();
  GACCD_RETURN_IF_ERROR(PrepareBatches());
  memory_.process += planned.code_bytes;
  memory_.device = planned.device_bytes;
  memory_.planned =
      memory_.process + planned.host_bytes + static_cast<std::int64_t>(batches_->memory_bytes());
  std::vector<float> parameters(static_cast<std::size_t>(model_.layout().size()));
  model_.Initialize(job_.seed, parameters);
  return engine_->SetParameters(parameters);
}

Result<ReplicaOptions> Trainer::MakeReplicaOptions() {
  ReplicaOptions options{.micro_steps_per_update = plan_.accum_steps()};
  AddMicroBatches(plan_, comm_.rank(), &options.micro_batches);
  if (schedule_.tail_samples() > 0) {
    GACCD_ASSIGN_OR_RETURN(tail_plan_, plan_.ForSamples(schedule_.tail_samples()));
    tail_program_ = PlainAccumulation(*tail_plan_);
    AddMicroBatches(*tail_plan_, comm_.rank(), &options.micro_batches);
  }
  if (evaluator_) options.eval_batches = evaluator_->BatchSizes();
  return options;
}

Status Trainer::PrepareBatches() {
  GACCD_ASSIGN_OR_RETURN(const TrainIndices indices, IndicesFrom(first_update_));
  PrefetcherOptions options{.held = engine_->held_batches(), .memory = ring_.MemoryOf(*engine_)};
  if (options.held > 0) options.slots = kSlotsForDevices;
  GACCD_ASSIGN_OR_RETURN(
      batches_, Prefetcher::Start(*train_, std::make_unique<TrainIndices>(indices), options));
  return Status::Ok();
}

Result<TrainIndices> Trainer::IndicesFrom(std::int64_t update) const {
  const SampleOrder order(job_.seed, train_->size(), job_.data.shuffle);
  return TrainIndices::Make(order, schedule_, plan_, comm_.rank(), update);
}

Status Trainer::LoadWeights(const std::string& path) {
  GACCD_ASSIGN_OR_RETURN(std::vector<float> parameters, Parameters());
  GACCD_RETURN_IF_ERROR(LoadParameters(path, model_.layout(), parameters, model_.weight_names()));
  return engine_->SetParameters(parameters);
}

Status Trainer::SaveWeights(const std::string& path, unsigned mode) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<float> parameters, Parameters());
  return SaveParameters(path, model_.layout(), parameters, mode);
}

Result<std::vector<float>> Trainer::Parameters() {
  std::vector<float> parameters(static_cast<std::size_t>(model_.layout().size()));
  GACCD_RETURN_IF_ERROR(engine_->GetParameters(parameters));
  return parameters;
}

Status Trainer::Resume(const LoadedState& state) {
  const RunCursor& cursor = state.manifest.cursor;
  if (cursor.step > schedule_.updates()) {
    return {ErrorKind::kConfig,
            StrCat("the checkpoint is of update ", cursor.step, ", the job ends after ",
                   schedule_.updates(), "; --resume=never starts anew")};
  }
  GACCD_RETURN_IF_ERROR(engine_->SetParameters(FloatsOf(state, kParametersBuffer)));
  GACCD_RETURN_IF_ERROR(
      engine_->SetOptimizer(FloatsOf(state, kOptimizerBuffer), cursor.optimizer_updates));
  first_update_ = cursor.step;
  first_samples_ = cursor.samples;
  evaluates_first_ = cursor.micro_step == 0 && evaluator_ && evaluator_->Due(cursor.step);
  if (cursor.micro_step > 0) TakeWindow(state);
  batches_.reset();  // it has begun to read for update 1
  return PrepareBatches();
}

void Trainer::TakeWindow(const LoadedState& state) {
  const RunCursor& cursor = state.manifest.cursor;
  if (const Status same = CheckSameWindow(state.manifest, job_, plan_); !same.ok()) {
    if (comm_.rank() != 0) return;
    LogWarning(StrCat("update ", cursor.step + 1, " restarts, ", cursor.micro_step,
                      " micro-steps of it are lost: ", same.message()));
    return;
  }
  const std::span<const float> accumulators = FloatsOf(state, kAccumulatorsBuffer);
  window_ = {.micro_step = cursor.micro_step,
             .accumulators = {accumulators.begin(), accumulators.end()},
             .share = state.manifest.shards[static_cast<std::size_t>(comm_.rank())].window};
}

Result<bool> Trainer::Evaluate(std::int64_t step, RunReporter& reporter, TrainingSummary* summary) {
  GACCD_ASSIGN_OR_RETURN(const std::optional<EvalRecord> record,
                         evaluator_->Evaluate(*engine_, step, stops_, notes_));
  if (!record) return false;
  summary->accuracy = record->accuracy;
  reporter.Eval(*record);
  return true;
}

Status Trainer::Run(RunReporter& reporter, TrainingSummary* summary, Saver* saver) {
  notes_.reporter = &reporter;
  summary->updates = first_update_;
  summary->samples = first_samples_;
  if (evaluates_first_) {  // the attempt before may have been stopped inside it
    GACCD_ASSIGN_OR_RETURN(const bool evaluated, Evaluate(first_update_, reporter, summary));
    if (!evaluated || (first_update_ < schedule_.updates() && Decision().stops())) {
      return StopAt(StrCat("in the evaluation after update ", first_update_), Decision(), *summary,
                    saver);
    }
  }
  const auto in_flight = static_cast<std::size_t>(engine_->updates_in_flight());
  for (std::int64_t index = first_update_; index < schedule_.updates(); ++index) {
    if (stops_ != nullptr && saver != nullptr) {
      stops_->ExpectSave(saver->last_save_s(), saver->window_ratio());
    }
    GACCD_RETURN_IF_ERROR(RunOne(index));
    if (left_) return LeaveInside(index, reporter, summary, saver);
    const Update update = in_flight_.back().update;
    const bool last = index + 1 == schedule_.updates();
    const bool evaluate = evaluator_ && evaluator_->Due(index + 1);
    GACCD_ASSIGN_OR_RETURN(const bool save, SaveIsDue(index + 1, saver));
    const bool drain = evaluate || save || last || ComparesAfter(index + 1);
    GACCD_RETURN_IF_ERROR(ReportUntil(drain ? 0 : in_flight, reporter, summary));
    StopDecision decision = Decision();
    if (decision.action != StopAction::kGoOn) {
      GACCD_RETURN_IF_ERROR(ReportUntil(0, reporter, summary));
    }
    if (update.epoch_end || last) GACCD_RETURN_IF_ERROR(CheckDataUnchanged());
    bool complete = last;
    if (evaluate && decision.action != StopAction::kLeave) {
      GACCD_ASSIGN_OR_RETURN(const bool evaluated, Evaluate(index + 1, reporter, summary));
      complete = last && evaluated;
      decision = Decision();
    }
    if (decision.action == StopAction::kLeave || (decision.stops() && !complete)) {
      return StopAt(StrCat("after update ", index + 1), decision, *summary, saver);
    }
    if (saver == nullptr) continue;
    GACCD_RETURN_IF_ERROR(OfAllRanks(saver->Poll(), summary));
    if (save || decision.action == StopAction::kSave) {
      const When when = last ? When::kNow : When::kWhenTheDiskAnswers;
      GACCD_RETURN_IF_ERROR(GiveUpIfAsked(OfAllRanks(SaveAt(*summary, *saver, when), summary),
                                          StrCat("after update ", index + 1), ErrorKind::kTempFail,
                                          *saver));
    }
  }
  GACCD_ASSIGN_OR_RETURN(summary->measured_memory, ResidentBytes());
  if (saver == nullptr) return Status::Ok();
  return GiveUpIfAsked(OfAllRanks(FinishSaves(*summary, *saver), summary), "after the last update",
                       ErrorKind::kTempFail, *saver);
}

Result<bool> Trainer::SaveIsDue(std::int64_t step, Saver* saver) const {
  if (saver == nullptr) return false;
  if (step == schedule_.updates()) return true;
  return saver->Due(step);
}

Status Trainer::ReportUntil(std::size_t in_flight, RunReporter& reporter,
                            TrainingSummary* summary) {
  while (in_flight_.size() > in_flight) {
    GACCD_RETURN_IF_ERROR(ReportOldest(reporter, summary));
  }
  return Status::Ok();
}

Status Trainer::RunOne(std::int64_t index) {
  const Update update = schedule_.At(index);
  const StepProgram& program = ProgramOf(update);
  const double lr =
      LearningRate(job_.schedule, job_.optimizer.lr, plan_.lr_factor(), index, schedule_.updates());
  const std::int64_t steps = program.computed;
  const std::int64_t restored = window_ ? window_->micro_step : 0;
  in_flight_.push_back(
      {.step = index + 1, .micro_steps = steps, .restored = restored, .update = update, .lr = lr});
  if (stops_ != nullptr) stops_->BeginUpdate(restored);
  UpdateHooks hooks{.note = [&](heartbeat::Phase phase,
                                std::int64_t micro_step) { notes_.Note(phase, index, micro_step); },
                    .leave = [&](std::int64_t done) { return LeaveWindow(done, steps); },
                    .tell = [&] { PackControlWords(steps); }};
  if (window_) {  // the first update of a run that goes on inside it
    hooks.done = restored;
    hooks.restore = [&] { return engine_->SetWindow(window_->accumulators, window_->share); };
  }
  Status status = RunUpdate(
      *engine_, *batches_, program,
      {.update = index, .lr = lr, .clip_norm = job_.clip_norm, .control_words = control_words_},
      hooks);
  window_.reset();
  // What a device fails at is the oldest update that it has not finished.
  return std::move(status).WithContext(StrCat("update ", in_flight_.front().step));
}

void Trainer::PackControlWords(std::int64_t micro_steps) {
  if (stops_ != nullptr) stops_->Pack(control_words_, micro_steps, engine_->updates_in_flight());
  times_.Pack(std::span(control_words_).subspan(kStopWordCount));
}

Status Trainer::ReportOldest(RunReporter& reporter, TrainingSummary* summary) {
  const InFlight done = in_flight_.front();
  const auto result = engine_->TakeResult(/*wait=*/true);
  if (!result.ok()) {
    return Explain(done, result.status()).WithContext(StrCat("update ", done.step));
  }
  if (!result->has_value()) {
    return {ErrorKind::kInternal,
            StrCat("update ", done.step, ": the engine has no results of it")};
  }
  in_flight_.pop_front();
  UpdateResult found = **result;
  if (found.finite) {
    nonfinite_ = 0;
  } else {
    GACCD_RETURN_IF_ERROR(
        ContinueAfterNonfinite(done, &found).WithContext(StrCat("update ", done.step)));
  }
  if (stops_ != nullptr) {
    stops_->Unpack(found.control_words, found.dur_s, done.micro_steps - done.restored);
  }
  if (notes_.peers != nullptr) notes_.peers->UpdateTook(std::chrono::duration<double>(found.dur_s));
  summary->updates = done.step;
  summary->samples += found.finite ? found.samples : 0;
  summary->skipped += found.finite ? 0 : 1;
  StepRecord record{.epoch = done.update.epoch + 1,
                    .step = done.step,
                    .steps_total = schedule_.updates(),
                    .samples = found.samples,
                    .target = done.update.samples,
                    .samples_total = summary->samples,
                    .loss = found.loss,
                    .grad_norm = found.grad_norm,
                    .lr = done.lr,
                    .skipped = !found.finite,
                    .dur_s = found.dur_s,
                    .data_s = found.data_s,
                    .fwd_bwd_s = found.fwd_bwd_s,
                    .reduce_s = found.reduce_s,
                    .opt_s = found.opt_s};
  FindStraggler(found, &record);
  GACCD_ASSIGN_OR_RETURN(record.digest, CompareReplicas(done.step, summary));
  reporter.Step(record);
  return Status::Ok();
}

}  // namespace gaccd
