#include "daemon/train/trainer.h"

#include <algorithm>
#include <span>
#include <utility>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "daemon/plan/speeds.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/pipeline.h"
#include "daemon/train/start_warnings.h"
#include "daemon/train/training_checks.h"
#include "daemon/train/update.h"

namespace gaccd {
namespace {

// REQUIRES: it is the loss, or one of the record's metrics.
double EvalValue(const EvalRecord& record, const std::string& name) {
  const auto metric = std::ranges::find(record.metrics, name, &MetricValue::name);
  return metric == record.metrics.end() ? record.loss : metric->value;
}

// Warning for a run with --bits=any-split that resumes with other micro-batches. Empty: they are
// the same, or there was no any-split.
std::string OtherBits(const Plan& was, bool was_by_length, const Plan& now, bool by_length) {
  if (!was.any_split() || !now.any_split()) return {};
  const auto describe = [](const Plan& plan, bool grouped) {
    return StrCat("of at most ", plan.request().micro_batch, " samples",
                  grouped ? ", grouped by length" : "");
  };
  const std::string before = describe(was, was_by_length);
  const std::string after = describe(now, by_length);
  if (before == after) return {};
  return StrCat("--bits=any-split: micro-batches ", after, " from here on, before the resume ",
                before, ": the run has other bits than one without this change");
}

}  // namespace

Trainer::Trainer(Communicator& comm, TrainingInputs inputs, const TrainerOptions& options)
    : comm_(comm),
      inputs_(std::move(inputs)),
      guards_(options.guards),
      loads_(options.loads),
      words_(comm),
      feed_(std::move(inputs_.feed)),
      evaluator_(std::move(inputs_.evaluator)),
      best_(inputs_.job.evaluation, inputs_.better) {
  if (inputs_.job.precision == Precision::kFP16) loss_scale_.emplace(inputs_.job.loss_scale);
}

Result<std::unique_ptr<Trainer>> Trainer::Make(Communicator& comm, TrainingInputs inputs,
                                               const TrainerOptions& options) {
  std::unique_ptr<Trainer> trainer(new Trainer(comm, std::move(inputs), options));
  GACCD_RETURN_IF_ERROR(trainer->Prepare(
      options.choice, options.device_comm == nullptr ? comm : *options.device_comm));
  return trainer;
}

Status Trainer::Prepare(const EngineChoice& choice, Communicator& device_comm) {
  GACCD_RETURN_IF_ERROR(
      CheckTrainingFlags(inputs_.job, inputs_.model, inputs_.plan, guards_, loads_));
  GACCD_RETURN_IF_ERROR(CheckSameData(comm_, *inputs_.data.train, inputs_.data.eval.get()));
  content_ = HashContent(*inputs_.data.train, inputs_.data.eval.get());
  if (words_.measures() && CanMeasureSpeeds(inputs_.job, inputs_.model) &&
      inputs_.model.micro_values() == 0 && !inputs_.plan.any_split()) {
    rebalancer_.emplace(static_cast<std::size_t>(comm_.size()), loads_.once, loads_.always);
  }
  if (loads_.any()) feed_.PrepareForOtherLoads();
  ReplicaOptions replica{
      .micro_batches = feed_.BatchSizes(),
      .micro_steps_per_update = feed_.max_micro_steps(),
      .effective_batch = inputs_.schedule.sizes().back(),
      .rank_samples = feed_.max_samples(),
      .in_flight = MaxInFlight(inputs_.job, inputs_.model, feed_.max_micro_steps()),
      .recompute = inputs_.plan.request().recompute,
      .any_split = inputs_.plan.any_split()};
  if (evaluator_) replica.eval_batches = evaluator_->BatchSizes();
  GACCD_ASSIGN_OR_RETURN(
      engine_, MakeEngine(device_comm, inputs_.model,
                          {.replica = replica,
                           .optimizer = inputs_.job.optimizer,
                           .shard = inputs_.job.shard,
                           .numerics = GetNumerics(inputs_.job),
                           .choice = choice,
                           .control_word_count = words_.words().size(),
                           .tolerate_nonfinite = guards_.on_nonfinite != OnNonfinite::kStop ||
                                                 loss_scale_ || inputs_.labels.unlabelled > 0 ||
                                                 inputs_.model.output_has_counts(),
                           .measure_process = true}));
  if (inputs_.job.noise_scale_every > 0 && !engine_->can_measure_noise()) {
    return NoiseScaleUnsupported(inputs_.job, engine_->device());
  }
  replicas_.emplace(comm_, guards_.digest_every, inputs_.schedule.updates());
  nonfinite_.emplace(
      NonfiniteContext{comm_, *engine_, inputs_.model.layout(), feed_, progress_, words_.words(),
                       loss_scale_ ? &*loss_scale_ : nullptr, inputs_.job},
      guards_.on_nonfinite);
  const EngineMemory planned = engine_->memory();
  GACCD_RETURN_IF_ERROR(feed_.Start(*engine_, 0));
  memory_.process = planned.process_bytes;
  memory_.device = planned.device_bytes;
  memory_.planned = memory_.process + planned.host_bytes +
                    static_cast<std::int64_t>(feed_.batches().memory_bytes());
  return engine_->ChangeParameters([this](std::span<float> parameters) {
    inputs_.model.Initialize(inputs_.job.seed, parameters);
    return Status::Ok();
  });
}

Result<std::vector<float>> Trainer::Parameters() {
  std::vector<float> parameters(static_cast<std::size_t>(inputs_.model.layout().size()));
  GACCD_RETURN_IF_ERROR(engine_->GetParameters(parameters));
  return parameters;
}

Result<std::vector<float>> Trainer::FinalParameters() {
  GACCD_RETURN_IF_ERROR(engine_->ExchangeAverages());
  GACCD_ASSIGN_OR_RETURN(std::vector<float> parameters, Parameters());
  GACCD_RETURN_IF_ERROR(engine_->ExchangeAverages());  // swaps back
  return parameters;
}

Status Trainer::Resume(const LoadedState& state, bool in_own_folder) {
  // A partial update continues with these loads.
  GACCD_RETURN_IF_ERROR(RestoreLoads(state.manifest));
  GACCD_ASSIGN_OR_RETURN(
      start_, RestoreState(*engine_, state, saved_run(), inputs_.schedule.updates(), comm_.rank()));
  start_.in_own_folder = in_own_folder;
  const std::string changed = ChangedDataText(state.manifest.cursor.content, content_);
  if (!changed.empty() && comm_.rank() == 0) LogWarning(changed);
  const Job& saved = state.job;
  // The best value over other evaluation data is not comparable with values over these.
  const std::uint64_t eval_was = state.manifest.cursor.content.eval;
  if (eval_was == 0 || content_.eval == 0 || eval_was == content_.eval) {
    best_.Restore(state.manifest.cursor.best, saved.evaluation);
  }
  const Plan& was = *state.manifest.plan;
  GACCD_ASSIGN_OR_RETURN(const UpdateSchedule before,
                         MakeUpdateSchedule(saved, was, state.manifest.cursor.dataset_samples));
  // A saved plan does not contain the learning-rate rule; the saved job does.
  PlanRequest request = was.request();
  request.lr_rule = saved.batch.lr_rule;
  request.reference_batch = saved.batch.reference;
  GACCD_ASSIGN_OR_RETURN(const Plan with_rule, Plan::Make(request));
  const std::string jump = LearningRateJump(
      {saved, with_rule.lr_factor(), before.updates()},
      {inputs_.job, inputs_.plan.lr_factor(), inputs_.schedule.updates()}, start_.updates);
  if (!jump.empty() && comm_.rank() == 0) LogWarning(jump);
  const bool texts = !inputs_.data.train->spec().cuts.empty();
  const std::string other_bits = OtherBits(was, texts && saved.batch.group_by_length, inputs_.plan,
                                           texts && inputs_.job.batch.group_by_length);
  if (!other_bits.empty() && comm_.rank() == 0) LogWarning(other_bits);
  if (inputs_.model.micro_values() > 0 && comm_.rank() == 0 &&
      MicroBatchesText(was) != MicroBatchesText(inputs_.plan)) {
    LogWarning(StrCat("batch_norm normalises micro-batches ", MicroBatchesText(inputs_.plan),
                      " from here on, before the resume ", MicroBatchesText(was)));
  }
  if (const auto& saved_scale = state.manifest.cursor.loss_scale; loss_scale_ && saved_scale) {
    loss_scale_->Restore(*saved_scale);
  }
  return feed_.Start(*engine_, start_.updates);
}

bool Trainer::IsComplete(std::int64_t step) const {
  return step == inputs_.schedule.updates() || best_.patience_is_over();
}

Result<bool> Trainer::FinishStart(RunReporter& reporter, TrainingSummary* summary,
                                  RunCheckpointer& control) {
  bool complete = IsComplete(start_.updates);  // nothing of a partial update is needed then
  const bool before = best_.state().evaluated == start_.updates;
  if ((complete || (start_.at_boundary && !before)) && EvaluatesAfter(start_.updates)) {
    // The previous attempt was stopped inside it. The summary of a complete run needs its metrics.
    GACCD_ASSIGN_OR_RETURN(const bool evaluated, Evaluate(start_.updates, reporter, summary));
    const StopDecision decision = control.decision();
    complete = IsComplete(start_.updates);
    if (!evaluated || (decision.stops() && !complete)) {
      return control.Stop(StrCat("in the evaluation after update ", start_.updates), decision);
    }
  }
  // A save now would be newer than the one inside the next update, which has more.
  const bool kept =
      start_.updates == 0 || (start_.in_own_folder && (start_.at_boundary || !complete));
  if (!kept && (complete || KeepsBest(start_.updates))) {
    GACCD_RETURN_IF_ERROR(control.AtBoundary(start_.updates, true, true));
  }
  return complete;
}

Status Trainer::Run(RunReporter& reporter, TrainingSummary* summary,
                    RunCheckpointer* checkpointer) {
  progress_.reporter = &reporter;
  summary->updates = start_.updates;
  summary->samples = start_.samples;
  RunCheckpointer unsaved(comm_);
  RunCheckpointer& control = checkpointer != nullptr ? *checkpointer : unsaved;
  control.BeginRun(stops_, &progress_, summary);
  ReportAllocationRetries(/*restored=*/0);
  // The plan that the attempt began with is that of the first stage.
  if (inputs_.schedule.StageIndex(start_.updates) > 0) ReportTarget(start_.updates, reporter);
  GACCD_ASSIGN_OR_RETURN(bool complete, FinishStart(reporter, summary, control));
  for (std::int64_t step = start_.updates + 1; !complete; ++step) {
    GACCD_RETURN_IF_ERROR(Begin(step - 1, control));
    if (control.interrupted_update()) {
      in_flight_.pop_back();  // the engine will not end it
      GACCD_RETURN_IF_ERROR(ReportUntil(0, reporter, summary));
      GACCD_RETURN_IF_ERROR(CheckParameters(step - 1, control));
      return control.StopInside();
    }
    const bool last = step == inputs_.schedule.updates();
    const bool evaluate = EvaluatesAfter(step);
    GACCD_ASSIGN_OR_RETURN(const bool save, control.SaveIsDue(step, last));
    const bool drain = last || evaluate || save || replicas_->Due(step);
    GACCD_RETURN_IF_ERROR(ReportUntil(drain ? 0 : engine_->updates_in_flight(), reporter, summary));
    StopDecision decision = control.decision();
    const bool requested = decision.action != StopAction::kContinue;
    if (requested) GACCD_RETURN_IF_ERROR(ReportUntil(0, reporter, summary));
    if (last || evaluate || save || requested)
      GACCD_RETURN_IF_ERROR(CheckParameters(step, control));
    if (last || inputs_.schedule.At(step - 1).epoch_end) {
      GACCD_RETURN_IF_ERROR(
          CheckUnchangedData(comm_, *inputs_.data.train, inputs_.data.eval.get()));
    }
    complete = last;
    if (evaluate && decision.action != StopAction::kExit) {
      GACCD_ASSIGN_OR_RETURN(const bool evaluated, Evaluate(step, reporter, summary));
      complete = evaluated && IsComplete(step);
      decision = control.decision();
    }
    if (decision.action == StopAction::kExit || (decision.stops() && !complete)) {
      return control.Stop(StrCat("after update ", step), decision);
    }
    const bool must_save = KeepsBest(step) || complete;
    GACCD_RETURN_IF_ERROR(control.AtBoundary(
        step, save || must_save || decision.action == StopAction::kSave, must_save));
    if (next_plan_ && !complete) {
      GACCD_RETURN_IF_ERROR(ReportUntil(0, reporter, summary));
      GACCD_RETURN_IF_ERROR(ChangeLoads(step, control, reporter));
    }
  }
  if (summary->updates < inputs_.schedule.updates()) {
    summary->stopped_early = EarlyStopReason(summary->updates);
  }
  GACCD_RETURN_IF_ERROR(SumAllocationRetries(summary));
  GACCD_ASSIGN_OR_RETURN(summary->measured_memory, ResidentBytes());
  return control.Finish();
}

std::string Trainer::EarlyStopReason(std::int64_t updates) const {
  if (updates > start_.updates) return best_.StopReason();
  return StrCat(best_.StopReason(), "; this was already the case at update ", updates,
                ", from which the run resumed, so nothing was trained; raise evaluation.patience "
                "to continue");
}

Status Trainer::CheckParameters(std::int64_t step, RunCheckpointer& control) {
  const Status finite = nonfinite_->CheckParameters();
  // On all ranks. A failed save has been reported.
  if (!finite.ok() && finite.kind() == ErrorKind::kNoRequeue) (void)control.FinishSaves();
  return finite.WithContext(StrCat("after update ", step));
}

Status Trainer::Begin(std::int64_t index, RunCheckpointer& control) {
  const Update update = inputs_.schedule.At(index);
  const UpdateProgram& program = feed_.ProgramFor(update);
  const std::int64_t steps = program.computed;
  const auto partial = std::exchange(start_.partial, std::nullopt);  // only for the first update
  const std::int64_t restored = partial ? partial->micro_step : 0;
  const double lr = JobLearningRate(inputs_.job, inputs_.plan, inputs_.schedule, index);
  const double loss_scale = loss_scale_ ? loss_scale_->scale() : 1;
  const std::int64_t noise_every = inputs_.job.noise_scale_every;
  in_flight_.push_back({.update = update,
                        .micro_steps = steps,
                        .restored = restored,
                        .lr = lr,
                        .loss_scale = loss_scale});
  control.BeginUpdate(restored);
  // The other ranks, waiting in the reduction, must not consider this one stuck.
  engine_->divided_steps().SetOnPrepare([progress = progress_, index](bool preparing) {
    progress.SetPhase(preparing ? heartbeat::Phase::kLoad : heartbeat::Phase::kCompute, index);
  });
  const UpdateHooks hooks{
      .on_progress = [&](heartbeat::Phase phase,
                         std::int64_t done) { progress_.SetPhase(phase, index, done); },
      .should_stop =
          [&](std::int64_t done) { return control.InterruptsUpdate(index, done, program); },
      .before_reduce = [&] { words_.Pack(stops_, steps, engine_->updates_in_flight()); },
      .resume_at = restored,
      .restore_accumulators =
          [&] { return engine_->SetPartialUpdate(partial->accumulators, partial->share); }};
  Status status = RunUpdate(*engine_, feed_.batches(), program,
                            {.update = index,
                             .lr = lr,
                             .clip_norm = inputs_.job.clip_norm,
                             .loss_scale = loss_scale,
                             .control_words = words_.words(),
                             .measure_noise = noise_every > 0 && (index + 1) % noise_every == 0},
                            hooks);
  ReportAllocationRetries(restored);
  // A device failure belongs to the oldest update that is not finished.
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
  const auto result = engine_->PopResult(/*wait=*/true);
  if (!result.ok()) {
    // All ranks have the same divisor.
    summary->failed_together |= result.status().kind() == ErrorKind::kData;
    return nonfinite_->Explain(done, result.status()).WithContext(where);
  }
  if (!result->has_value()) {
    return {ErrorKind::kInternal, StrCat(where, ": the engine has no results of it")};
  }
  in_flight_.pop_front();
  UpdateResult found = **result;
  GACCD_RETURN_IF_ERROR(nonfinite_->HandleResult(done, &found).WithContext(where));
  summary->updates = done.step();
  summary->samples += found.finite ? found.samples : 0;
  summary->skipped += found.finite || IsUnlabelled(found) ? 0 : 1;
  summary->unlabelled += IsUnlabelled(found) ? 1 : 0;
  StepRecord record{
      .epoch = done.update.epoch + 1,
      .step = done.step(),
      .steps_total = inputs_.schedule.updates(),
      .samples = found.samples,
      .target = done.update.samples,
      .samples_total = summary->samples,
      .loss = found.loss,
      .divisor = found.divisor,
      .unit = std::string(inputs_.model.divisor_unit()),
      .grad_norm = found.grad_norm,
      .lr = done.lr,
      .skipped = !found.finite,
      .dur_s = found.dur_s,
      .data_s = found.data_s,
      .fwd_bwd_s = found.fwd_bwd_s,
      .reduce_s = found.reduce_s,
      .opt_s = found.opt_s,
      .own_share = 1 - static_cast<double>(done.restored) / static_cast<double>(done.micro_steps)};
  if (loss_scale_) {
    record.loss_scale = {.scale = done.loss_scale,
                         .growth_tracker = loss_scale_->state().growth_tracker};
  }
  words_.Unpack(done, found, &feed_, stops_, progress_.peers, &record);
  MeasureLoads();
  GACCD_ASSIGN_OR_RETURN(record.digest,
                         replicas_->Compare(*engine_, done.step(), &summary->failed_together));
  const UpdateSchedule& schedule = inputs_.schedule;
  if (schedule.stages().size() > 1) {
    record.samples_left =
        schedule.SamplesBefore(schedule.updates()) - schedule.SamplesBefore(done.step());
  }
  reporter.Report(record);
  if (schedule.StageIndex(done.step()) != schedule.StageIndex(done.step() - 1)) {
    ReportTarget(done.step(), reporter);
  }
  if (found.noise) ReportNoise(done, *found.noise, reporter);
  return Status::Ok();
}

void Trainer::ReportTarget(std::int64_t step, RunReporter& reporter) {
  const UpdateSchedule& schedule = inputs_.schedule;
  if (step == schedule.updates()) return;
  const std::size_t stage = schedule.StageIndex(step);
  const std::int64_t first = schedule.stages()[stage].first_update;
  const std::int64_t target = schedule.stages()[stage].batch;
  const Plan& plan = feed_.PlanFor({.index = first, .samples = target});
  reporter.Report(TargetRecord{.step = first,
                               .samples_total = schedule.SamplesBefore(first),
                               .stage = static_cast<std::int64_t>(stage) + 1,
                               .target_before = schedule.stages()[stage - 1].batch,
                               .target = target,
                               .accum_steps = plan.accum_steps(),
                               .loads = LoadsText(plan)});
}

void Trainer::ReportNoise(const UpdateInFlight& done, const GradientNoise& found,
                          RunReporter& reporter) {
  noise_.Add(found);
  const GradientNoise average = noise_.average();
  reporter.Report(NoiseScaleRecord{.step = done.step(),
                                   .measured = noise_.measured(),
                                   .target = done.update.samples,
                                   .gradient_variance = average.variance,
                                   .gradient_square = average.square,
                                   .noise_scale = noise_.samples()});
}

bool Trainer::EvaluatesAfter(std::int64_t step) const {
  return evaluator_ &&
         EvaluationIsDue(inputs_.schedule, inputs_.job.evaluation.every_updates, step);
}

bool Trainer::KeepsBest(std::int64_t step) const {
  return inputs_.job.evaluation.keep_best && best_.state().step == step;
}

Result<bool> Trainer::Evaluate(std::int64_t step, RunReporter& reporter, TrainingSummary* summary) {
  const EvaluationTime now{.epoch = inputs_.schedule.At(step - 1).epoch + 1, .step = step};
  GACCD_RETURN_IF_ERROR(engine_->ExchangeAverages());
  GACCD_ASSIGN_OR_RETURN(std::optional<EvalRecord> record,
                         evaluator_->Evaluate(*engine_, now, stops_, progress_));
  GACCD_RETURN_IF_ERROR(engine_->ExchangeAverages());  // swaps back
  if (!record) return false;
  // Broadcast, as ranks that disagree about the best evaluation would not save together.
  double value = EvalValue(*record, inputs_.job.evaluation.metric);
  GACCD_RETURN_IF_ERROR(comm_.Broadcast(View(std::span(&value, 1)), 0));
  best_.Record(step, value);
  record->best = best_.best();
  summary->metrics = record->metrics;
  summary->best = record->best;
  reporter.Report(*record);
  return true;
}

}  // namespace gaccd
