#include "daemon/train/trainer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/checkpoint/saved_job.h"
#include "daemon/data/sample_order.h"
#include "daemon/device/host_buffer.h"
#include "daemon/optim/schedule.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/same_data.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/update.h"

namespace gaccd {
namespace {

// REQUIRES: it is the loss, or one of the record's metrics.
double ValueOf(const EvalRecord& record, const std::string& name) {
  const auto metric = std::ranges::find(record.metrics, name, &MetricValue::name);
  return metric == record.metrics.end() ? record.loss : metric->value;
}

// kData where no sample of the data can be trained or measured with.
Result<std::int64_t> FindUnlabelled(const Dataset& data, std::string_view name) {
  const std::int64_t unlabelled = CountUnlabelled(data);
  if (unlabelled < data.size()) return unlabelled;
  return Status(ErrorKind::kData,
                StrCat("the ", name, " has no label that counts: expected one that is not ",
                       data.spec().ignored_label, ", with a weight above 0, found none in ",
                       data.size(), " samples"));
}

// One sample has no other to be compared with: its loss is 0, and so is its gradient.
Status CheckContrasts(const UpdateSchedule& schedule) {
  const bool always = schedule.request().batch == 1;
  if (!always && schedule.tail_samples() != 1) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("contrastive: expected at least 2 samples in every update, found 1 in ",
                 always ? "all of them: choose a larger target"
                        : "the last one of an epoch or of the run: choose another target, or "
                          "--last-cycle=drop")};
}

}  // namespace

Trainer::Trainer(Communicator& comm, const Job& job, const Plan& plan, TrainingData data,
                 Model model, const UpdateSchedule& schedule, BatchFeed feed)
    : comm_(comm),
      job_(job),
      plan_(plan),
      data_(std::move(data)),
      model_(std::move(model)),
      schedule_(schedule),
      words_(comm),
      feed_(std::move(feed)),
      best_(job.evaluation, Better::kSmaller) {
  if (job.precision == Precision::kFP16) loss_scale_.emplace(job.loss_scale);
  if (data_.eval != nullptr) {
    evaluator_.emplace(comm, *data_.eval, plan.request().micro_batch,
                       model_.divisor_unit(data_.eval_weighted), job.metric);
    evaluator_->GroupByLength(model_.sample().cuts);
  }
}

Result<std::unique_ptr<Trainer>> Trainer::Open(Communicator& comm, const Job& job, const Plan& plan,
                                               const BadRecordRules& bad_records) {
  GACCD_ASSIGN_OR_RETURN(TrainingData data, OpenTrainingData(job, bad_records));
  return Open(comm, job, plan, std::move(data));
}

Result<std::unique_ptr<Trainer>> Trainer::Open(Communicator& comm, const Job& job, const Plan& plan,
                                               TrainingData data) {
  GACCD_ASSIGN_OR_RETURN(Model model, Model::Make(job.model, BatchSpecOf(job, *data.train)));
  model.SetDropoutSeed(job.seed);
  GACCD_RETURN_IF_ERROR(model.ApplyRules(job.optimizer));
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule schedule,
                         ScheduleOf(job, plan.effective_batch(), data.train->size()));
  GACCD_RETURN_IF_ERROR(CheckSchedule(job.schedule));
  if (KindOf(job.model.loss) == LossKind::kContrastive) {
    GACCD_RETURN_IF_ERROR(CheckContrasts(schedule));
  }
  GACCD_ASSIGN_OR_RETURN(const std::int64_t unlabelled,
                         FindUnlabelled(*data.train, "training data"));
  if (data.eval != nullptr) {
    GACCD_RETURN_IF_ERROR(FindUnlabelled(*data.eval, "evaluation data").status());
  }
  const SampleOrder order(job.seed, data.train->size(), job.data.shuffle);
  GACCD_ASSIGN_OR_RETURN(BatchFeed feed,
                         BatchFeed::Make(*data.train, order, schedule, plan, comm.rank(),
                                         GeneratorOf(KindOf(job.model.loss))));
  feed.GroupByLength(model.sample().cuts);
  std::unique_ptr<Trainer> trainer(
      new Trainer(comm, job, plan, std::move(data), std::move(model), schedule, std::move(feed)));
  trainer->unlabelled_ = unlabelled;
  if (!trainer->evaluator_) return trainer;
  auto better = trainer->evaluator_->FindBetter(job.evaluation.metric);
  if (!better.ok()) return std::move(better).status().WithContext("evaluation.metric");
  trainer->best_ = BestEvaluation(job.evaluation, *better);
  return trainer;
}

Status Trainer::Prepare(const EngineChoice& choice, Communicator* device_comm) {
  GACCD_RETURN_IF_ERROR(CheckSameData(comm_, *data_.train, data_.eval.get()));
  ReplicaOptions replica{.micro_batches = feed_.BatchSizes(),
                         .micro_steps_per_update = plan_.accum_steps(),
                         .effective_batch = plan_.effective_batch(),
                         .rank_samples = plan_.Load(comm_.rank())};
  if (evaluator_) replica.eval_batches = evaluator_->BatchSizes();
  GACCD_ASSIGN_OR_RETURN(
      engine_, MakeEngine(device_comm == nullptr ? comm_ : *device_comm, model_,
                          {.replica = replica,
                           .optimizer = job_.optimizer,
                           .numerics = NumericsOf(job_),
                           .choice = choice,
                           .control_word_count = words_.words().size(),
                           .tolerate_nonfinite = guards_.on_nonfinite != OnNonfinite::kStop ||
                                                 loss_scale_ || unlabelled_ > 0,
                           .measure_process = true}));
  replicas_.emplace(comm_, guards_.digest_every, schedule_.updates());
  nonfinite_.emplace(NonfiniteContext{comm_, *engine_, model_.layout(), feed_, progress_,
                                      words_.words(), loss_scale_ ? &*loss_scale_ : nullptr, job_},
                     guards_.on_nonfinite);
  const EngineMemory planned = engine_->memory();
  GACCD_RETURN_IF_ERROR(feed_.Start(*engine_, 0));
  memory_.process = planned.process_bytes;
  memory_.device = planned.device_bytes;
  memory_.planned = memory_.process + planned.host_bytes +
                    static_cast<std::int64_t>(feed_.batches().memory_bytes());
  return engine_->ChangeParameters([this](std::span<float> parameters) {
    model_.Initialize(job_.seed, parameters);
    return Status::Ok();
  });
}

Result<std::vector<float>> Trainer::Parameters() {
  std::vector<float> parameters(static_cast<std::size_t>(model_.layout().size()));
  GACCD_RETURN_IF_ERROR(engine_->GetParameters(parameters));
  return parameters;
}

Result<std::vector<float>> Trainer::FinalParameters() {
  GACCD_RETURN_IF_ERROR(engine_->ExchangeAverages());
  GACCD_ASSIGN_OR_RETURN(std::vector<float> parameters, Parameters());
  GACCD_RETURN_IF_ERROR(engine_->ExchangeAverages());  // and back
  return parameters;
}

Status Trainer::Resume(const LoadedState& state) {
  GACCD_ASSIGN_OR_RETURN(
      start_, RestoreState(*engine_, state, saved_run(), schedule_.updates(), comm_.rank()));
  GACCD_ASSIGN_OR_RETURN(const Job saved, SavedJob(state.manifest));
  best_.Restore(state.manifest.cursor.best, saved.evaluation);
  const Plan& was = *state.manifest.plan;
  GACCD_ASSIGN_OR_RETURN(
      const UpdateSchedule before,
      ScheduleOf(saved, was.effective_batch(), state.manifest.cursor.dataset_samples));
  const std::string jump =
      LearningRateJump({saved, was.lr_factor(), before.updates()},
                       {job_, plan_.lr_factor(), schedule_.updates()}, start_.updates);
  if (!jump.empty() && comm_.rank() == 0) LogWarning(jump);
  if (const auto& saved_scale = state.manifest.cursor.loss_scale; loss_scale_ && saved_scale) {
    loss_scale_->Restore(*saved_scale);
  }
  return feed_.Start(*engine_, start_.updates);
}

Status Trainer::Run(RunReporter& reporter, TrainingSummary* summary, Checkpointer* checkpointer) {
  progress_.reporter = &reporter;
  summary->updates = start_.updates;
  summary->samples = start_.samples;
  CheckpointAndStop control(stops_, checkpointer, progress_, summary);
  const auto is_complete = [&](std::int64_t step) {
    return step == schedule_.updates() || best_.patience_is_over();
  };
  if (start_.at_boundary && EvaluatesAfter(start_.updates)) {
    // The attempt before may have been stopped inside it.
    GACCD_ASSIGN_OR_RETURN(const bool evaluated, Evaluate(start_.updates, reporter, summary));
    const StopDecision decision = control.decision();
    if (!evaluated || (decision.stops() && !is_complete(start_.updates))) {
      return control.Stop(StrCat("in the evaluation after update ", start_.updates), decision);
    }
  }
  bool complete = is_complete(start_.updates);
  for (std::int64_t step = start_.updates + 1; !complete; ++step) {
    GACCD_RETURN_IF_ERROR(Begin(step - 1, control));
    if (control.left_update()) {
      in_flight_.pop_back();  // the engine will not end it
      GACCD_RETURN_IF_ERROR(ReportUntil(0, reporter, summary));
      return control.StopInside();
    }
    const bool last = step == schedule_.updates();
    const bool evaluate = EvaluatesAfter(step);
    GACCD_ASSIGN_OR_RETURN(const bool save, control.SaveIsDue(step, last));
    const bool drain = last || evaluate || save || replicas_->Due(step);
    GACCD_RETURN_IF_ERROR(ReportUntil(drain ? 0 : engine_->updates_in_flight(), reporter, summary));
    StopDecision decision = control.decision();
    if (decision.action != StopAction::kContinue) {
      GACCD_RETURN_IF_ERROR(ReportUntil(0, reporter, summary));
    }
    if (last || schedule_.At(step - 1).epoch_end) {
      GACCD_RETURN_IF_ERROR(CheckUnchangedData(comm_, *data_.train, data_.eval.get()));
    }
    complete = last;
    if (evaluate && decision.action != StopAction::kExit) {
      GACCD_ASSIGN_OR_RETURN(const bool evaluated, Evaluate(step, reporter, summary));
      complete = evaluated && is_complete(step);
      decision = control.decision();
    }
    if (decision.action == StopAction::kExit || (decision.stops() && !complete)) {
      return control.Stop(StrCat("after update ", step), decision);
    }
    GACCD_RETURN_IF_ERROR(control.AtBoundary(
        step, save || KeepsBest(step) || complete || decision.action == StopAction::kSave,
        complete));
  }
  if (summary->updates < schedule_.updates()) {
    summary->stopped_early = best_.WhyStopped();
    if (summary->updates == start_.updates) {
      summary->stopped_early +=
          StrCat("; this was so at update ", start_.updates,
                 ", from which the run resumed, so nothing was trained; raise evaluation.patience "
                 "to continue");
    }
  }
  GACCD_ASSIGN_OR_RETURN(summary->measured_memory, ResidentBytes());
  return control.Finish();
}

Status Trainer::Begin(std::int64_t index, CheckpointAndStop& control) {
  const Update update = schedule_.At(index);
  const StepProgram& program = feed_.ProgramOf(update);
  const std::int64_t steps = program.computed;
  const auto window = std::exchange(start_.window, std::nullopt);  // of the first update alone
  const std::int64_t restored = window ? window->micro_step : 0;
  const double lr =
      LearningRate(job_.schedule, job_.optimizer.lr, plan_.lr_factor(), index, schedule_.updates());
  const double loss_scale = loss_scale_ ? loss_scale_->scale() : 1;
  in_flight_.push_back({.update = update,
                        .micro_steps = steps,
                        .restored = restored,
                        .lr = lr,
                        .loss_scale = loss_scale});
  control.BeginUpdate(restored);
  const UpdateHooks hooks{
      .on_progress = [&](heartbeat::Phase phase,
                         std::int64_t done) { progress_.SetPhase(phase, index, done); },
      .should_stop = [&](std::int64_t done) { return control.LeavesUpdate(index, done, program); },
      .before_reduce = [&] { words_.Pack(stops_, steps, engine_->updates_in_flight()); },
      .resume_at = restored,
      .restore_accumulators =
          [&] { return engine_->SetWindow(window->accumulators, window->share); }};
  Status status = RunUpdate(*engine_, feed_.batches(), program,
                            {.update = index,
                             .lr = lr,
                             .clip_norm = job_.clip_norm,
                             .loss_scale = loss_scale,
                             .control_words = words_.words()},
                            hooks);
  // What a device fails at is the oldest update that it has not finished.
  return std::move(status).WithContext(StrCat("update ", in_flight_.front().step()));
}

Status Trainer::ReportUntil(int in_flight, RunReporter& reporter, TrainingSummary* summary) {
  while (std::ssize(in_flight_) > in_flight) {
    GACCD_RETURN_IF_ERROR(ReportOldest(reporter, summary));
  }
  return Status::Ok();
}

Status Trainer::ReportOldest(RunReporter& reporter, TrainingSummary* summary) {
  const UpdateInFlight done = in_flight_.front();
  const std::string where = StrCat("update ", done.step());
  const auto result = engine_->TakeResult(/*wait=*/true);
  if (!result.ok()) {
    // All ranks have found the same divisor.
    summary->failed_together |= result.status().kind() == ErrorKind::kData;
    return nonfinite_->Explain(done, result.status()).WithContext(where);
  }
  if (!result->has_value()) {
    return {ErrorKind::kInternal, StrCat(where, ": the engine has no results of it")};
  }
  in_flight_.pop_front();
  UpdateResult found = **result;
  GACCD_RETURN_IF_ERROR(nonfinite_->Settle(done, &found).WithContext(where));
  summary->updates = done.step();
  summary->samples += found.finite ? found.samples : 0;
  summary->skipped += found.finite || IsUnlabelled(found) ? 0 : 1;
  summary->unlabelled += IsUnlabelled(found) ? 1 : 0;
  StepRecord record{.epoch = done.update.epoch + 1,
                    .step = done.step(),
                    .steps_total = schedule_.updates(),
                    .samples = found.samples,
                    .target = done.update.samples,
                    .samples_total = summary->samples,
                    .loss = found.loss,
                    .divisor = found.divisor,
                    .unit = model_.divisor_unit(),
                    .grad_norm = found.grad_norm,
                    .lr = done.lr,
                    .skipped = !found.finite,
                    .dur_s = found.dur_s,
                    .data_s = found.data_s,
                    .fwd_bwd_s = found.fwd_bwd_s,
                    .reduce_s = found.reduce_s,
                    .opt_s = found.opt_s};
  if (loss_scale_) {
    record.loss_scale = {.scale = done.loss_scale,
                         .growth_tracker = loss_scale_->state().growth_tracker};
  }
  words_.Unpack(done, found, stops_, progress_.peers, &record);
  GACCD_ASSIGN_OR_RETURN(record.digest,
                         replicas_->Compare(*engine_, done.step(), &summary->failed_together));
  reporter.ReportStep(record);
  return Status::Ok();
}

bool Trainer::EvaluatesAfter(std::int64_t step) const {
  return evaluator_ && EvaluationIsDue(schedule_, job_.evaluation.every_updates, step);
}

bool Trainer::KeepsBest(std::int64_t step) const {
  return job_.evaluation.keep_best && best_.state().step == step;
}

Result<bool> Trainer::Evaluate(std::int64_t step, RunReporter& reporter, TrainingSummary* summary) {
  const EvaluationTime now{.epoch = schedule_.At(step - 1).epoch + 1, .step = step};
  GACCD_RETURN_IF_ERROR(engine_->ExchangeAverages());
  GACCD_ASSIGN_OR_RETURN(std::optional<EvalRecord> record,
                         evaluator_->Evaluate(*engine_, now, stops_, progress_));
  GACCD_RETURN_IF_ERROR(engine_->ExchangeAverages());  // and back
  if (!record) return false;
  // Ranks that took another evaluation for the best would not save together.
  double value = ValueOf(*record, job_.evaluation.metric);
  GACCD_RETURN_IF_ERROR(comm_.Broadcast(View(std::span(&value, 1)), 0));
  best_.Record(step, value);
  record->best = best_.best();
  summary->metrics = record->metrics;
  summary->best = record->best;
  reporter.ReportEval(*record);
  return true;
}

}  // namespace gaccd
