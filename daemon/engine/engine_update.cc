// Engine: phases of an update, its result, and Probe().
#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>

#include "collectives/base/strings.h"
#include "collectives/base/time.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/engine_checks.h"

namespace gaccd {
namespace {

// 1 / count: the weight of one prediction in an update of `count` predictions over all ranks.
// kInternal for count < 1: an update without samples has no mean.
Result<double> InverseCount(std::int64_t count) {
  if (count < 1) {
    return Status(ErrorKind::kInternal,
                  StrCat("the mean of an update needs at least 1 sample, found ", count));
  }
  return 1.0 / static_cast<double>(count);
}

Status CheckFinite(double loss, bool gradient_finite, double divisor, bool any_split) {
  if (std::isinf(divisor)) {
    return {ErrorKind::kData,
            "the sum of the weights of this update is inf: expected smaller weights"};
  }
  if (!(divisor > 0)) {
    return {
        ErrorKind::kData,
        StrCat("every label in this update is ignored (-100 or weight 0): nothing to train on; the "
               "sum of weights is ",
               divisor)};
  }
  if (std::isfinite(loss) && gradient_finite) return Status::Ok();
  return {ErrorKind::kNoRequeue,
          StrCat("training diverged: the loss is ", loss, ", the gradient is ",
                 gradient_finite ? "finite" : "not finite",
                 any_split ? ", or not below 2^20 in a micro-batch (--bits=any-split)" : "")};
}

Status NotContrastive() {
  return {ErrorKind::kInternal, "the loss of this engine is not contrastive"};
}

}  // namespace

std::string_view Engine::Name(Phase phase) {
  constexpr std::array<std::string_view, 9> kNames = {
      "End",       "Begin",  "Encode",          "ComputeContrastiveLoss",
      "MicroStep", "Reduce", "MeasureGradient", "Audit",
      "Optimize"};
  return kNames[static_cast<std::size_t>(phase)];
}

Status Engine::Expect(std::string_view call, std::initializer_list<Phase> after) const {
  if (std::ranges::find(after, phase_) != after.end()) return Status::Ok();
  std::string expected;
  for (const Phase phase : after) {
    expected += StrCat(expected.empty() ? "" : "() or ", Name(phase));
  }
  return {ErrorKind::kInternal, StrCat("engine: ", call, "(): expected after ", expected,
                                       "(), found after ", Name(phase_), "()")};
}

Status Engine::Enter(Phase next, std::initializer_list<Phase> after) {
  GACCD_RETURN_IF_ERROR(Expect(Name(next), after));
  phase_ = next;
  return Status::Ok();
}

Status Engine::Begin(const UpdateSettings& settings) {
  GACCD_RETURN_IF_ERROR(Expect("Begin", {Phase::kEnd}));
  if (count_ > static_cast<std::size_t>(updates_in_flight())) {
    return {ErrorKind::kInternal, "an update begins before the results of the last one were read"};
  }
  const std::int64_t predictions = settings.samples * model_.predictions();
  GACCD_ASSIGN_OR_RETURN(const double weight, InverseCount(predictions));
  GACCD_RETURN_IF_ERROR(CheckElementCount("control words", options_.control_word_count,
                                          settings.control_words.size()));
  phase_ = Phase::kBegin;
  ++count_;
  InFlight& update = current();
  update.settings = settings;
  update.optimizer_updates = backend_->updates();
  update.counted = 0;
  update.data_s = 0;
  update.sums_s = 0;
  update.slot.page->inputs = {
      .clip_norm = settings.clip_norm,
      .effective_batch = static_cast<double>(settings.samples),
      .planned_divisor = static_cast<double>(predictions) / settings.loss_scale,
      .update = settings.update,
      .prediction_weight = static_cast<float>(weight * settings.loss_scale),
      .continue_if_nonfinite = options_.tolerate_nonfinite ? 1 : 0,
      .measure_noise = settings.measure_noise ? 1 : 0};
  loss_scale_ = settings.loss_scale;
  segment_ = 0;
  if (contrastive_) contrastive_->Begin();
  divided_.Begin(settings.update);
  GACCD_RETURN_IF_ERROR(backend_->Begin(update.slot, settings.lr));
  (void)Lap();
  return Status::Ok();
}

double Engine::Lap() {
  const auto begin = std::exchange(lap_, std::chrono::steady_clock::now());
  return SecondsSince(begin, lap_);
}

// Adds the time the host waited for a batch to data_s, if the device was idle too.
Status Engine::CountWaiting() {
  const double waited = Lap();
  GACCD_ASSIGN_OR_RETURN(const bool idle, backend_->Idle(current().slot));
  if (idle) current().data_s += waited;
  return Status::Ok();
}

Status Engine::Encode(const BatchView& batch) {
  if (!contrastive_) return NotContrastive();
  GACCD_RETURN_IF_ERROR(Enter(Phase::kEncode, {Phase::kBegin, Phase::kEncode}));
  GACCD_RETURN_IF_ERROR(CountWaiting());
  GACCD_RETURN_IF_ERROR(EncodeRows(batch));
  (void)Lap();
  return Status::Ok();
}

Status Engine::EncodeRows(const BatchView& batch) {
  const std::int64_t first = contrastive_->encoded();
  return backend_->Encode(batch, first, contrastive_->Append(batch.samples));
}

Status Engine::ComputeContrastiveLoss() {
  if (!contrastive_) return NotContrastive();
  GACCD_RETURN_IF_ERROR(Enter(Phase::kContrast, {Phase::kEncode}));
  GACCD_RETURN_IF_ERROR(ContrastiveLossOver(comm_));
  (void)Lap();
  return Status::Ok();
}

Status Engine::ContrastiveLossOver(Communicator& comm) {
  GACCD_ASSIGN_OR_RETURN(const float log_scale, backend_->FetchRows(contrastive_->rows()));
  GACCD_RETURN_IF_ERROR(contrastive_->ComputeContrastiveLoss(comm, double{log_scale}, loss_scale_));
  return backend_->SetRowGradients(contrastive_->gradients(), contrastive_->sums());
}

Status Engine::MicroStep(const BatchView& batch, MicroStepPosition place) {
  const Phase before = contrastive_ ? Phase::kContrast : Phase::kBegin;
  GACCD_RETURN_IF_ERROR(Enter(Phase::kMicroStep, {before, Phase::kMicroStep}));
  GACCD_RETURN_IF_ERROR(CountWaiting());
  current().counted += batch.samples;
  GACCD_RETURN_IF_ERROR(Accumulate(batch, place));
  (void)Lap();
  return Status::Ok();
}

Status Engine::RunSegment(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment) {
  GACCD_RETURN_IF_ERROR(Enter(Phase::kMicroStep, {Phase::kBegin, Phase::kMicroStep}));
  if (segment != segment_) {
    return {ErrorKind::kInternal,
            StrCat("engine: expected segment ", segment_, ", found ", segment)};
  }
  GACCD_RETURN_IF_ERROR(CountWaiting());
  if (segment == 0) current().counted += batch.samples;
  GACCD_RETURN_IF_ERROR(backend_->RunSegment(batch, micro_batch, segment));
  (void)Lap();
  return Status::Ok();
}

Status Engine::RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment) {
  GACCD_RETURN_IF_ERROR(Enter(Phase::kMicroStep, {Phase::kBegin, Phase::kMicroStep}));
  GACCD_RETURN_IF_ERROR(CountWaiting());
  // Samples of a pipeline are counted in its last stage.
  if (segment == 0 && model_.stage() && model_.stage()->last()) current().counted += batch.samples;
  GACCD_RETURN_IF_ERROR(backend_->RunStage(batch, micro_batch, segment));
  (void)Lap();
  return Status::Ok();
}

Status Engine::SumOverUpdate() {
  GACCD_RETURN_IF_ERROR(Expect("SumOverUpdate", {Phase::kMicroStep}));
  // This wait is for other ranks, not for data.
  GACCD_RETURN_IF_ERROR(CountWaiting());
  GACCD_RETURN_IF_ERROR(backend_->SumOverRanks(segment_++));
  current().sums_s += Lap();
  return Status::Ok();
}

Status Engine::Accumulate(const BatchView& batch, MicroStepPosition place) {
  if (!contrastive_) return divided_.MicroStep(batch, place);
  const std::int64_t first = contrastive_->replayed();
  GACCD_ASSIGN_OR_RETURN(const float* gradients, contrastive_->Next(batch.samples));
  return divided_.MicroStep(batch, place, first, gradients);
}

Result<PartialUpdate> Engine::GetPartialUpdate() {
  GACCD_RETURN_IF_ERROR(Expect("GetPartialUpdate", {Phase::kMicroStep}));
  GACCD_ASSIGN_OR_RETURN(const UpdateSums sums, backend_->Sums());
  return PartialUpdate{.samples = static_cast<std::int64_t>(sums.samples),
                       .loss_sum = sums.loss,
                       .divisor = sums.divisor};
}

Status Engine::SetPartialUpdate(std::span<const float> gradients, const PartialUpdate& share) {
  GACCD_RETURN_IF_ERROR(Expect("SetPartialUpdate", {Phase::kBegin, Phase::kMicroStep}));
  phase_ = Phase::kMicroStep;
  constexpr EngineBuffer kBuffer = EngineBuffer::kGradients;
  GACCD_RETURN_IF_ERROR(CheckElementCount("accumulators", Elements(kBuffer), gradients.size()));
  GACCD_RETURN_IF_ERROR(backend_->CopyIn("accumulators", kBuffer, gradients));
  current().counted = share.samples;
  return backend_->SetSums({.loss = share.loss_sum,
                            .divisor = share.divisor,
                            .samples = static_cast<double>(share.samples)});
}

Status Engine::Reduce() {
  GACCD_RETURN_IF_ERROR(Enter(Phase::kReduce, {Phase::kMicroStep}));
  if (segment_ != model_.update_sums()) {
    return {ErrorKind::kInternal, StrCat("engine: expected ", model_.update_sums(),
                                         " sums over the update, found ", segment_)};
  }
  const InFlight& update = current();
  std::ranges::copy(update.settings.control_words, update.slot.control_words.begin());
  return backend_->Reduce(update.slot);
}

Status Engine::MeasureGradient() {
  GACCD_RETURN_IF_ERROR(Enter(Phase::kMeasure, {Phase::kReduce}));
  return backend_->Measure();
}

Status Engine::Audit() { return Enter(Phase::kAudit, {Phase::kMeasure}); }

Status Engine::Optimize() {
  GACCD_RETURN_IF_ERROR(Enter(Phase::kOptimize, {Phase::kAudit}));
  return backend_->Optimize(limit_ ? &*limit_ : nullptr);
}

Status Engine::End() {
  GACCD_RETURN_IF_ERROR(Enter(Phase::kEnd, {Phase::kOptimize}));
  return backend_->End(current().slot);
}

Result<std::optional<UpdateResult>> Engine::PopResult(bool wait) {
  if (count_ == (open() ? 1U : 0U)) return std::optional<UpdateResult>();
  const InFlight& update = updates_[oldest_];
  GACCD_ASSIGN_OR_RETURN(const bool finished, backend_->Finished(update.slot, wait));
  if (!finished) return std::optional<UpdateResult>();
  const UpdateDecision& decision = update.slot.page->decision;
  correction_ = decision.correction;
  parameters_not_finite_ = update.slot.page->parameters_not_finite != 0;
  // The device has changed nothing in this update; after an error, nothing in later ones either.
  if (decision.idle != 0) backend_->set_updates(update.optimizer_updates);
  if (Status error = CheckDecision(update); !error.ok()) {
    // Probe() uses the settings of this update, not those of one enqueued after it.
    loss_scale_ = update.settings.loss_scale;
    GACCD_RETURN_IF_ERROR(backend_->SetInputs(update.slot));
    return error;
  }
  GACCD_ASSIGN_OR_RETURN(const UpdateResult result, MakeResult(update));
  oldest_ = (oldest_ + 1) % updates_.size();
  --count_;
  return std::optional(result);
}

// All ranks have the same sums, so all reach the same decision on the same update.
Status Engine::CheckDecision(const InFlight& update) {
  const UpdateDecision& decision = update.slot.page->decision;
  const UpdateSums& sums = update.slot.page->sums;
  // A wrong count is reported first, as it explains a wrong result.
  if (decision.counted == 0) {
    return SampleCountError(comm_, update.counted, static_cast<std::int64_t>(sums.samples),
                            update.settings.samples);
  }
  if (decision.finite == 0 && !options_.tolerate_nonfinite) {
    GACCD_RETURN_IF_ERROR(CheckFinite(sums.loss / sums.divisor, std::isfinite(decision.norm),
                                      sums.divisor,
                                      options_.replica.any_split && !std::isfinite(decision.norm)));
  }
  if (decision.stopped == 0) return Status::Ok();
  return {ErrorKind::kInternal,
          StrCat("the device stopped: sample count correct: ", decision.counted, ", finite: ",
                 decision.finite, ", loss sum ", sums.loss, ", gradient norm ", decision.norm)};
}

Result<UpdateResult> Engine::MakeResult(const InFlight& update) {
  const UpdateControl& page = *update.slot.page;
  UpdateResult result{.samples = update.settings.samples,
                      .divisor = page.sums.divisor,
                      .loss = page.sums.loss / page.sums.divisor,
                      .grad_norm = page.decision.norm,
                      .finite = page.decision.finite != 0,
                      .control_words = update.slot.control_words};
  if (result.finite && update.settings.measure_noise) {
    const double correction = page.decision.correction;
    result.noise =
        EstimateNoise(page.decision.norm, page.sums.squares_per_sample * correction * correction,
                      std::llround(page.sums.ranks), result.samples);
  }
  const auto seconds = [&](UpdateMark from, UpdateMark to) {
    return backend_->Seconds(update.slot, from, to);
  };
  GACCD_ASSIGN_OR_RETURN(const double steps_s, seconds(UpdateMark::kBegin, UpdateMark::kComputed));
  GACCD_ASSIGN_OR_RETURN(result.reduce_s, seconds(UpdateMark::kComputed, UpdateMark::kReduced));
  GACCD_ASSIGN_OR_RETURN(result.opt_s, seconds(UpdateMark::kReduced, UpdateMark::kEnd));
  const double sums_s = std::min(update.sums_s, steps_s);
  result.data_s = std::min(update.data_s, steps_s - sums_s);
  result.fwd_bwd_s = steps_s - sums_s - result.data_s;
  result.reduce_s += sums_s;
  result.dur_s = result.data_s + result.fwd_bwd_s + result.reduce_s + result.opt_s;
  return result;
}

Result<double> Engine::Probe(const BatchView& batch) {
  if (!can_probe()) {
    return Status(ErrorKind::kNoRequeue,
                  "a micro-batch of a model with collective operations or statistics of the whole "
                  "update cannot be computed by itself");
  }
  GACCD_RETURN_IF_ERROR(backend_->SetSums({}));
  if (contrastive_) {
    contrastive_->Begin();
    GACCD_RETURN_IF_ERROR(EncodeRows(batch));
    const std::unique_ptr<Communicator> alone = MakeSingle();
    GACCD_RETURN_IF_ERROR(ContrastiveLossOver(*alone));
  }
  GACCD_RETURN_IF_ERROR(Accumulate(batch, {.first = true, .last = false}));
  if (contrastive_) GACCD_RETURN_IF_ERROR(backend_->SetScaleGradient());
  GACCD_ASSIGN_OR_RETURN(const UpdateSums sums, backend_->Sums());
  return std::isfinite(sums.divisor) ? sums.loss : sums.divisor;
}

}  // namespace gaccd
