// CudaBackend: work enqueued during an update and between updates.
#include "daemon/engine/backend_cuda.h"

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

// Whether an error of a micro-step or its preparation is a memory shortage: they make no other
// system requests, see CudaStatus().
bool IsShortage(const Status& status) { return !status.ok() && status.kind() == ErrorKind::kOs; }

}  // namespace

Status CudaBackend::Begin(const UpdateSlot& slot, double lr) {
  GACCD_RETURN_IF_ERROR(slots_->Mark(slot, UpdateMark::kBegin, context_->compute()));
  optimizer_->Prepare(lr, &slot.page->inputs);
  reduced_ = false;
  graph_.NextUpdate();
  GACCD_RETURN_IF_ERROR(replica_->BeginSegments());
  return SetInputs(slot);
}

Result<bool> CudaBackend::Idle(const UpdateSlot& slot) {
  GACCD_ASSIGN_OR_RETURN(
      const bool begun,
      waiter_.HasCompleted(slots_->event(slot, UpdateMark::kBegin), "start of an update"));
  GACCD_ASSIGN_OR_RETURN(const bool idle, uploads_->Idle());
  return begun && idle;
}

Status CudaBackend::MicroStep(const BatchView& batch, MicroStepPosition place, std::int64_t first,
                              const float* /*row_gradients*/) {
  reduced_ = false;
  if (rows_ != nullptr) GACCD_RETURN_IF_ERROR(rows_->Select(first, batch.samples));
  if (batch.samples == 0 && model_.has_collectives()) {
    GACCD_RETURN_IF_ERROR(replica_->MicroStep({}, /*slot=*/0, place));
  } else if (batch.samples == 0) {
    GACCD_RETURN_IF_ERROR(EmptyMicroStep(place));
  } else {
    GACCD_ASSIGN_OR_RETURN(const int slot, uploads_->Upload(batch));
    const Status enqueued = replica_->MicroStep(batch.size(), slot, place);
    // One launch failed and nothing was computed; the copied batch is not read.
    if (IsShortage(enqueued)) allocation_error_ = enqueued;
    GACCD_RETURN_IF_ERROR(enqueued);
    GACCD_RETURN_IF_ERROR(uploads_->Release(slot));
  }
  return uploads_->NextCall();
}

// Waits, as kernels and graphs on the GPU may still use the memory that is freed here.
Status CudaBackend::PrepareSizes(const std::set<std::int64_t>& micro_batches, Recompute recompute) {
  for (cudaStream_t stream : {context_->copy(), context_->compute(), context_->reduce()}) {
    GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(stream, "work before smaller micro-batches"));
  }
  if (reduction_ != nullptr) reduction_->StartRecording();
  const Status prepared = replica_->PrepareSizes(micro_batches, recompute);
  LogNotes();
  allocation_error_ = IsShortage(prepared) ? prepared : Status::Ok();
  if (allocation_error_.ok()) return prepared;
  (void)cudaGetLastError();  // reported here, not by the next call
  return Status::Ok();
}

Status CudaBackend::EmptyMicroStep(MicroStepPosition place) {
  if (place.first) GACCD_RETURN_IF_ERROR(ClearGradients());
  GACCD_RETURN_IF_ERROR(EndMicroStep(nullptr, nullptr, 0, place));
  return place.last && reduction_ != nullptr ? reduction_->MarkAll() : Status::Ok();
}

Status CudaBackend::ClearGradients() {
  return CudaStatus(cudaMemsetAsync(gradients_, 0, elements() * sizeof(float), context_->compute()),
                    "gradients without samples");
}

Status CudaBackend::RunSegment(const BatchView& batch, std::int64_t micro_batch,
                               std::int64_t segment) {
  if (micro_batch < 0 || micro_batch >= std::ssize(kept_)) {
    return {ErrorKind::kInternal,
            StrCat("expected a micro-batch below ", kept_.size(), ", found ", micro_batch)};
  }
  if (segment == 0) GACCD_RETURN_IF_ERROR(UploadBatch(batch, micro_batch));
  const BatchSize size = kept_[static_cast<std::size_t>(micro_batch)];
  const int slot = kept_slots_[static_cast<std::size_t>(micro_batch)];
  CudaReplica::LossPlace loss;
  if (size.samples > 0) {
    GACCD_ASSIGN_OR_RETURN(loss, replica_->RunSegment(size, micro_batch, slot, segment));
  }
  if (segment < model_.update_sums()) return Status::Ok();
  if (size.samples > 0) GACCD_RETURN_IF_ERROR(uploads_->Release(slot));
  return AddToSums(context_->compute(), control(), loss.loss_sum, loss.divisor, size.samples,
                   /*first=*/micro_batch == 0);
}

// If an update has one micro-batch there are two slots, so that the next one is copied while it is
// computed.
Status CudaBackend::UploadBatch(const BatchView& batch, std::int64_t micro_batch) {
  const auto at = static_cast<std::size_t>(micro_batch);
  kept_[at] = batch.size();
  if (batch.samples == 0) {
    if (micro_batch == 0) GACCD_RETURN_IF_ERROR(ClearGradients());
  } else if (kept_.size() == 1) {
    GACCD_ASSIGN_OR_RETURN(kept_slots_[at], uploads_->Upload(batch));
  } else {
    kept_slots_[at] = static_cast<int>(micro_batch);
    GACCD_RETURN_IF_ERROR(uploads_->UploadTo(kept_slots_[at], batch));
  }
  return uploads_->NextCall();
}

Status CudaBackend::SumOverRanks(std::int64_t segment) {
  if (!reduces()) return Status::Ok();
  if (!overlaps()) {
    GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(context_->compute(), "sums over the update"));
  }
  if (std::ssize(statistics_) == segment) {
    const MutableBuffer sum = replica_->update_sum(segment);
    const std::size_t begin = graph_.size();
    GACCD_RETURN_IF_ERROR(graph_.AllReduceSum(comm_, {&sum, 1}, {context_->compute()}));
    statistics_.push_back(graph_.Since(begin));
  }
  return graph_.Run(statistics_[static_cast<std::size_t>(segment)]);
}

// The loss of a contrastive update, and the gradient of log t, cover all its samples.
Status CudaBackend::EndMicroStep(const double* loss_sum, const double* divisor,
                                 std::int64_t samples, MicroStepPosition place) {
  if (rows_ != nullptr) {
    if (place.first) loss_sum = rows_->loss();
    if (place.last) GACCD_RETURN_IF_ERROR(SetScaleGradient());
  }
  return AddToSums(context_->compute(), control(), loss_sum, divisor, samples, place.first);
}

Status CudaBackend::Reduce(const UpdateSlot& slot) {
  cudaStream_t compute = context_->compute();
  GACCD_RETURN_IF_ERROR(CudaSlots::SendControlWords(slot, control(), compute));
  GACCD_RETURN_IF_ERROR(slots_->Mark(slot, UpdateMark::kComputed, compute));
  if (pipeline_ != nullptr) return ReduceStages(slot);
  if (reduction_ == nullptr) return slots_->Mark(slot, UpdateMark::kReduced, compute);
  // Segments mark no bucket: several of them may add to the gradient of a parameter.
  if (model_.update_sums() > 0) GACCD_RETURN_IF_ERROR(reduction_->MarkAll());
  const CudaEvent& computed = slots_->event(slot, UpdateMark::kComputed);
  if (!overlaps()) GACCD_RETURN_IF_ERROR(waiter_.Wait(computed, "micro-steps"));
  reduced_ = true;
  GACCD_RETURN_IF_ERROR(reduction_->Enqueue(computed));
  GACCD_RETURN_IF_ERROR(slots_->Mark(slot, UpdateMark::kReduced, context_->reduce()));
  return CudaStatus(
      cudaStreamWaitEvent(compute, slots_->event(slot, UpdateMark::kReduced).get(), 0),
      "wait for the reduction");
}

Status CudaBackend::Measure() {
  // Values per micro-batch are stored among the gradients of all parts.
  if (shards_ != nullptr && model_.micro_values() > 0) {
    GACCD_RETURN_IF_ERROR(shards_->GatherGradients());
  }
  GACCD_RETURN_IF_ERROR(replica_->CollectRunningStatistics());
  cudaStream_t compute = context_->compute();
  void* const scratch = norm_scratch_.data();
  if (shards_ != nullptr) {
    GACCD_RETURN_IF_ERROR(shards_->GatherSquares(control()));
  } else {
    GACCD_RETURN_IF_ERROR(
        BlockSquares(compute, gradients_, divided().elements, control(), SquaresIn(scratch)));
  }
  if (pipeline_ != nullptr) return pipeline_->Decide(control(), scratch, compute);
  return DecideFromSquares(compute, divided().elements, control(), scratch);
}

Status CudaBackend::Optimize(const ParameterLimit* limit) {
  cudaStream_t stream = context_->compute();
  GACCD_RETURN_IF_ERROR(optimizer_->Step(stream, control()));
  if (limit != nullptr) {
    GACCD_RETURN_IF_ERROR(LimitParameter(
        stream, control(), parameters_.as<float>() + limit->element, limit->max_value));
  }
  GACCD_RETURN_IF_ERROR(optimizer_->Average(stream, control()));
  if (pipeline_ != nullptr) return SharedParametersChanged();
  GACCD_RETURN_IF_ERROR(replica_->AddToRunningStatistics(&control()->decision.idle));
  return shards_ != nullptr ? OwnParametersChanged() : Status::Ok();
}

// Also if the decision is idle, which the host does not know: then the values are unchanged.
Status CudaBackend::OwnParametersChanged() {
  GACCD_RETURN_IF_ERROR(shards_->GatherParameters());
  return ParametersChanged();
}

Status CudaBackend::ExchangeAverages() {
  GACCD_RETURN_IF_ERROR(optimizer_->ExchangeAverages(context_->compute()));
  if (pipeline_ != nullptr) return SharedParametersChanged();
  // On all ranks, also if the own part is empty.
  const bool exchanged = options_.optimizer.ema && optimizer_->updates() > 0;
  return shards_ != nullptr && exchanged ? OwnParametersChanged() : Status::Ok();
}

Status CudaBackend::End(const UpdateSlot& slot) {
  GACCD_RETURN_IF_ERROR(slots_->Fetch(slot, control(), context_->compute()));
  return slots_->Mark(slot, UpdateMark::kEnd, context_->compute());
}

Result<bool> CudaBackend::Finished(const UpdateSlot& slot, bool wait) {
  const CudaEvent& end = slots_->event(slot, UpdateMark::kEnd);
  if (!wait) return waiter_.HasCompleted(end, "update");
  GACCD_RETURN_IF_ERROR(waiter_.Wait(end, "update"));
  return true;
}

Status CudaBackend::Encode(const BatchView& batch, std::int64_t first, float* /*rows*/) {
  if (batch.samples > 0) {
    GACCD_ASSIGN_OR_RETURN(float* const rows, rows_->At(first, batch.samples));
    GACCD_ASSIGN_OR_RETURN(const int slot, uploads_->Upload(batch));
    GACCD_RETURN_IF_ERROR(replica_->Encode(batch.size(), slot, rows));
    GACCD_RETURN_IF_ERROR(uploads_->Release(slot));
  }
  return uploads_->NextCall();
}

Result<UpdateSums> CudaBackend::Sums() {
  cudaStream_t stream = context_->compute();
  auto* sums = results_.as<UpdateSums>();
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(sums, &control()->sums, sizeof *sums, cudaMemcpyDeviceToHost, stream),
      "sums of an update"));
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(stream, "sums of an update"));
  return *sums;
}

Status CudaBackend::SetSums(const UpdateSums& sums) {
  cudaStream_t stream = context_->compute();
  auto* from = results_.as<UpdateSums>();
  *from = sums;
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(&control()->sums, from, sizeof *from, cudaMemcpyHostToDevice, stream),
      "sums of an update"));
  return waiter_.WaitForStream(stream, "sums of an update");
}

Result<Evaluation> CudaBackend::Evaluate(const BatchView& batch) {
  if (pipeline_ != nullptr) return EvaluateStage(batch);
  constexpr int kSlot = 0;
  cudaStream_t stream = context_->compute();
  GACCD_RETURN_IF_ERROR(replica_->Upload(batch, kSlot, stream));
  auto* found = results_.as<std::byte>();
  GACCD_RETURN_IF_ERROR(replica_->Evaluate(batch.size(), kSlot, found));
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(stream, "evaluation"));
  return replica_->ReadEvaluation(batch.size(), found);
}

// The caller has checked the number of elements.
Status CudaBackend::CopyIn(std::string_view what, EngineBuffer to, std::span<const float> from) {
  if ((shards_ != nullptr || pipeline_ != nullptr) && to == EngineBuffer::kOptimizer) {
    return CopyInOwnState(what, from);
  }
  if (pipeline_ != nullptr) return CopyInStage(what, to, from);
  if (from.empty()) return Status::Ok();
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(Buffer(to), from.data(), from.size_bytes(),
                                                   cudaMemcpyHostToDevice, context_->compute()),
                                   what));
  return waiter_.WaitForStream(context_->compute(), what);
}

Status CudaBackend::CopyOut(std::string_view what, EngineBuffer from, std::int64_t first,
                            std::span<float> to) {
  if (shards_ != nullptr && from == EngineBuffer::kGradients && reduced_) {
    GACCD_RETURN_IF_ERROR(shards_->GatherGradients());
  }
  if (pipeline_ != nullptr) return CopyOutStage(what, from, first, to);
  if (shards_ != nullptr && from == EngineBuffer::kOptimizer) {
    return shards_->CopyStateOut(what, state_.as<float>(), first, to);
  }
  return CopyFromGpu(what, Buffer(from) + first, to);
}

// A copy from pageable memory has read the source when it returns.
Status CudaBackend::CopyInOwnState(std::string_view what, std::span<const float> whole) {
  cudaStream_t compute = context_->compute();
  const std::int64_t buffers = StateElements(options_.optimizer, 1);
  const std::int64_t each = own_.state_elements;
  for (std::int64_t buffer = 0; each > 0 && buffer < buffers; ++buffer) {
    const std::int64_t first = buffer * model_.layout().trainable_size() + own_.state_first;
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(state_.as<float>() + buffer * each, whole.data() + first,
                                   static_cast<std::size_t>(each) * sizeof(float),
                                   cudaMemcpyHostToDevice, compute),
                   what));
  }
  return waiter_.WaitForStream(compute, what);
}

Status CudaBackend::CopyFromGpu(std::string_view what, const float* from, std::span<float> to) {
  if (to.empty()) return Status::Ok();
  // A copy to pageable memory blocks in the driver, so wait by polling first.
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(context_->compute(), what));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(to.data(), from, to.size_bytes(),
                                                   cudaMemcpyDeviceToHost, context_->compute()),
                                   what));
  return waiter_.WaitForStream(context_->compute(), what);
}

Status CudaBackend::ParametersChanged() {
  if (activations() == DType::kF32) return Status::Ok();
  return CastTo(activations(), context_->compute(), parameters_.as<float>(), places().size(),
                half_copy_.data());
}

Result<std::byte*> CudaBackend::HostMemory(std::size_t bytes) {
  GACCD_ASSIGN_OR_RETURN(PinnedBuffer memory, PinnedBuffer::Allocate(bytes, "micro-batches"));
  host_memory_.push_back(std::move(memory));
  return host_memory_.back().as<std::byte>();
}

}  // namespace gaccd
