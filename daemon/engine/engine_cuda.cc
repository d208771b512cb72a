#include "daemon/engine/engine_cuda.h"

#include <algorithm>
#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/accum/sample_ledger.h"
#include "daemon/engine/engine_checks.h"

namespace gaccd {

Status CudaEngine::Begin(const UpdateSettings& settings) {
  GACCD_ASSIGN_OR_RETURN(const double weight,
                         InverseCount(settings.samples * model_.predictions()));
  GACCD_RETURN_IF_ERROR(
      CheckCount("control words", options_.control_word_count, settings.control_words.size()));
  GACCD_RETURN_IF_ERROR(records_->Begin(context_->compute()));
  UpdateRecord& record = records_->current();
  record.settings = settings;
  loss_scale_ = settings.loss_scale;
  record.optimizer_updates = optimizer_->updates();
  UpdateInputs& inputs = record.page->inputs;
  inputs = {.clip_norm = settings.clip_norm,
            .effective_batch = static_cast<double>(settings.samples),
            .planned_divisor =
                static_cast<double>(settings.samples * model_.predictions()) / settings.loss_scale,
            .update = settings.update,
            .prediction_weight = static_cast<float>(weight * settings.loss_scale),
            .outlive = options_.tolerate_nonfinite ? 1 : 0};
  open_ = true;
  if (contrast_ != nullptr) contrast_->Begin();
  optimizer_->Prepare(settings.lr, &inputs);
  (void)host_.Lap();
  return records_->SendInputs(record, control(), context_->compute());
}

// The host has waited for a batch; of that, what the GPU waited too.
Status CudaEngine::CountWaiting() {
  const double waited = host_.Lap();
  UpdateRecord& record = records_->current();
  GACCD_ASSIGN_OR_RETURN(const bool begun, waiter_.Happened(record.begin, "start of an update"));
  GACCD_ASSIGN_OR_RETURN(const bool idle, uploads_->Idle());
  if (begun && idle) record.data_s += waited;
  return Status::Ok();
}

Status CudaEngine::Encode(const BatchView& batch) {
  if (contrast_ == nullptr) return Engine::Encode(batch);
  GACCD_RETURN_IF_ERROR(CountWaiting());
  GACCD_RETURN_IF_ERROR(EncodeRows(batch));
  GACCD_RETURN_IF_ERROR(uploads_->NextCall());
  (void)host_.Lap();
  return Status::Ok();
}

Status CudaEngine::EncodeRows(const BatchView& batch) {
  if (batch.samples == 0) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(float* rows, contrast_->Append(batch.samples));
  GACCD_ASSIGN_OR_RETURN(const int slot, uploads_->Upload(batch));
  GACCD_RETURN_IF_ERROR(replica_->Encode(batch.size(), slot, rows));
  return uploads_->Release(slot);
}

Status CudaEngine::ComputeContrastiveLoss() {
  if (contrast_ == nullptr) return Engine::ComputeContrastiveLoss();
  GACCD_RETURN_IF_ERROR(
      contrast_->ComputeContrastiveLoss(comm_, waiter_, parameters_.as<float>(), loss_scale_));
  (void)host_.Lap();
  return Status::Ok();
}

Status CudaEngine::MicroStep(const BatchView& batch, StepPlace place) {
  GACCD_RETURN_IF_ERROR(CountWaiting());
  records_->current().counted += batch.samples;
  if (contrast_ != nullptr) GACCD_RETURN_IF_ERROR(contrast_->Next(batch.samples));
  if (batch.samples == 0 && model_.has_collectives()) {
    GACCD_RETURN_IF_ERROR(replica_->MicroStep({}, /*slot=*/0, place));
  } else if (batch.samples == 0) {
    GACCD_RETURN_IF_ERROR(EmptyMicroStep(place));
  } else {
    GACCD_ASSIGN_OR_RETURN(const int slot, uploads_->Upload(batch));
    GACCD_RETURN_IF_ERROR(replica_->MicroStep(batch.size(), slot, place));
    GACCD_RETURN_IF_ERROR(uploads_->Release(slot));
  }
  GACCD_RETURN_IF_ERROR(uploads_->NextCall());
  (void)host_.Lap();
  return Status::Ok();
}

Status CudaEngine::EmptyMicroStep(StepPlace place) {
  cudaStream_t stream = context_->compute();
  if (place.first) {
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemsetAsync(gradients_, 0, elements() * sizeof(float), stream),
                   "gradients without samples"));
  }
  GACCD_RETURN_IF_ERROR(Finish(nullptr, nullptr, 0, place));
  return place.last && reduction_ != nullptr ? reduction_->MarkAll() : Status::Ok();
}

// The loss of a contrastive update is that of all its samples, and so is the gradient of log t.
Status CudaEngine::Finish(const double* loss_sum, const double* divisor, std::int64_t samples,
                          StepPlace place) {
  if (contrast_ != nullptr) {
    if (place.first) loss_sum = contrast_->loss();
    if (place.last) GACCD_RETURN_IF_ERROR(contrast_->SetScaleGradient(gradients_));
  }
  return AddToSums(context_->compute(), control(), loss_sum, divisor, samples, place.first);
}

Status CudaEngine::Reduce() {
  const UpdateRecord& record = records_->current();
  std::ranges::copy(record.settings.control_words, record.control_words.begin());
  GACCD_RETURN_IF_ERROR(records_->SendControlWords(control(), context_->compute()));
  const auto mark = [](const CudaEvent& event, cudaStream_t stream) {
    return CudaStatus(cudaEventRecord(event.get(), stream), "mark of a phase");
  };
  GACCD_RETURN_IF_ERROR(mark(record.computed, context_->compute()));
  if (reduction_ == nullptr) return mark(record.reduced, context_->compute());
  if (!overlaps()) {
    GACCD_RETURN_IF_ERROR(waiter_.Wait(record.computed, "micro-steps"));
  }
  GACCD_RETURN_IF_ERROR(reduction_->Enqueue(record.computed));
  GACCD_RETURN_IF_ERROR(mark(record.reduced, context_->reduce()));
  return CudaStatus(cudaStreamWaitEvent(context_->compute(), record.reduced.get(), 0),
                    "wait for the reduction");
}

Status CudaEngine::MeasureGradient() {
  return gaccd::MeasureGradient(context_->compute(), gradients_, model_.layout().size(), control(),
                                norm_scratch_.data());
}

Status CudaEngine::Optimize() {
  GACCD_RETURN_IF_ERROR(optimizer_->Step(context_->compute(), control()));
  if (contrast_ != nullptr) {
    GACCD_RETURN_IF_ERROR(contrast_->LimitScale(control(), parameters_.as<float>()));
  }
  return optimizer_->Average(context_->compute(), control());
}

Status CudaEngine::End() {
  open_ = false;
  if (reduction_ != nullptr) GACCD_RETURN_IF_ERROR(reduction_->NextCycle());
  return records_->End(control(), context_->compute());
}

Result<std::optional<UpdateResult>> CudaEngine::TakeResult(bool wait) {
  if (records_->empty()) return std::optional<UpdateResult>();
  const UpdateRecord& record = records_->oldest();
  if (wait) {
    GACCD_RETURN_IF_ERROR(waiter_.Wait(record.end, "update"));
  } else {
    GACCD_ASSIGN_OR_RETURN(const bool over, waiter_.Happened(record.end, "update"));
    if (!over) return std::optional<UpdateResult>();
  }
  correction_ = record.page->verdict.correction;
  if (Status verdict = Verdict(record); !verdict.ok()) {
    // The GPU has changed nothing in this update and in those after it.
    optimizer_->set_updates(record.optimizer_updates);
    // Probe() computes with the settings of this update, not of one that was enqueued after it.
    GACCD_RETURN_IF_ERROR(records_->SendInputs(record, control(), context_->compute()));
    return verdict;
  }
  GACCD_ASSIGN_OR_RETURN(const UpdateResult result, ResultOf(record));
  if (!result.finite) optimizer_->set_updates(record.optimizer_updates);
  records_->DropOldest();
  return std::optional(result);
}

// All ranks have the same sums, so all of them come to the same verdict about the same update.
Status CudaEngine::Verdict(const UpdateRecord& record) {
  const UpdateVerdict& verdict = record.page->verdict;
  if (verdict.counted == 0) {
    SampleLedger ledger;
    ledger.Add(record.counted);
    GACCD_RETURN_IF_ERROR(ledger.Audit(comm_, static_cast<std::int64_t>(record.page->sums.samples),
                                       record.settings.samples));
  }
  if (verdict.finite == 0 && !options_.tolerate_nonfinite) {
    const UpdateSums& sums = record.page->sums;
    GACCD_RETURN_IF_ERROR(
        CheckFinite(sums.loss / sums.divisor, std::isfinite(verdict.norm), sums.divisor));
  }
  if (verdict.stopped == 0) return Status::Ok();
  return {ErrorKind::kInternal, StrCat("the GPU has stopped: counted samples right: ",
                                       verdict.counted, ", finite: ", verdict.finite, ", loss sum ",
                                       record.page->sums.loss, ", gradient norm ", verdict.norm)};
}

// Of a contrastive loss: against the other samples of the micro-batch.
Result<double> CudaEngine::Probe(const BatchView& batch) {
  GACCD_RETURN_IF_ERROR(CheckProbe(model_));
  constexpr StepPlace kAlone{.first = true, .last = false};
  cudaStream_t stream = context_->compute();
  if (contrast_ != nullptr) {
    contrast_->Begin();
    GACCD_RETURN_IF_ERROR(EncodeRows(batch));
    const std::unique_ptr<Communicator> alone = MakeSingle();
    GACCD_RETURN_IF_ERROR(
        contrast_->ComputeContrastiveLoss(*alone, waiter_, parameters_.as<float>(), loss_scale_));
    GACCD_RETURN_IF_ERROR(contrast_->Next(batch.samples));
  }
  if (batch.samples == 0) {
    GACCD_RETURN_IF_ERROR(EmptyMicroStep(kAlone));
  } else {
    GACCD_ASSIGN_OR_RETURN(const int slot, uploads_->Upload(batch));
    GACCD_RETURN_IF_ERROR(replica_->MicroStep(batch.size(), slot, kAlone));
    GACCD_RETURN_IF_ERROR(uploads_->Release(slot));
  }
  if (contrast_ != nullptr) GACCD_RETURN_IF_ERROR(contrast_->SetScaleGradient(gradients_));
  auto* loss = evaluation_.as<double>();
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(loss, &control()->sums.loss, sizeof *loss, cudaMemcpyDeviceToHost, stream),
      "copy of a loss"));
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(stream, "one micro-batch"));
  return *loss;
}

Result<Evaluation> CudaEngine::Evaluate(const BatchView& batch) {
  constexpr int kSlot = 0;
  cudaStream_t stream = context_->compute();
  GACCD_RETURN_IF_ERROR(replica_->Upload(batch, kSlot, stream));
  auto* found = evaluation_.as<std::byte>();
  GACCD_RETURN_IF_ERROR(replica_->Evaluate(batch.size(), kSlot, found));
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(stream, "evaluation"));
  return replica_->ReadEvaluation(batch.size(), found);
}

}  // namespace gaccd
