#include "daemon/replica/replica_cuda.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/ops/cuda_kernels.h"

namespace gaccd {

namespace {

std::size_t PlaceIndex(MicroStepPosition place) {
  return (place.first ? 1U : 0U) + (place.last ? 2U : 0U);
}

std::size_t ValueBytes(const Graph& graph, ValueId id) {
  return static_cast<std::size_t>(graph.value(id).spec.bytes());
}

Result<DeviceBuffer> AllocateBytes(std::int64_t bytes, std::string_view what) {
  return DeviceBuffer::Allocate(static_cast<std::size_t>(bytes), what);
}

}  // namespace

CudaReplica::CudaReplica(CudaContext& context, const Model& model, const ReplicaOptions& options,
                         Precision precision, Communicator* comm)
    : context_(context),
      model_(model),
      options_(options),
      precision_(precision),
      comm_(comm),
      places_(model.sample().tensors.size() + 2) {}

CudaReplica::~CudaReplica() = default;

Result<std::unique_ptr<CudaReplica>> CudaReplica::Create(CudaContext& context, const Model& model,
                                                         const ReplicaOptions& options,
                                                         Precision precision, Communicator* comm) {
  std::unique_ptr<CudaReplica> replica(new CudaReplica(context, model, options, precision, comm));
  GACCD_RETURN_IF_ERROR(replica->RecordGraphs());
  return replica;
}

Status CudaReplica::RecordGraphs() {
  GACCD_RETURN_IF_ERROR(graphs_.Record(model_, options_, precision_, [](Graph& graph) {
    FuseForCuda(graph);
    return CheckCudaKernels(graph);
  }));
  if (model_.update_sums() > 0) kept_ = static_cast<int>(options_.micro_steps_per_update);
  if (model_.stage()) kept_ = static_cast<int>(options_.in_flight);
  sums_ = graphs_.UpdateSumElements();
  CountMemory();
  return Status::Ok();
}

// An input slot has the size of the largest batch.
void CudaReplica::CountMemory() {
  const std::vector<std::int64_t> inputs = graphs_.InputBytes(model_.sample());
  slot_bytes_ = 0;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    places_[i] = {.bytes = inputs[i], .offset = slot_bytes_};
    slot_bytes_ += inputs[i];
  }
  for (const auto& [size, graph] : graphs_.all<EvaluationGraph>()) {
    std::size_t bytes = 0;
    for (const ValueId output : graph.ids.Outputs()) bytes += ValueBytes(graph.graph(), output);
    evaluation_bytes_ = std::max(evaluation_bytes_, bytes);
  }
}

void CudaReplica::Bind(Executor& executor, std::span<const BoundInput> inputs,
                       std::size_t slot) const {
  const std::byte* begin = inputs_.as<std::byte>() + slot * static_cast<std::size_t>(slot_bytes_);
  for (const BoundInput& input : inputs) {
    executor.BindInput(input.value,
                       input.from == BoundInput::From::kUpdate
                           ? static_cast<const void*>(update_)
                           : begin + places_[InputIndex(input, model_.sample())].offset);
  }
}

void CudaReplica::AddMemory(DeviceMemory* memory) const {
  memory->Add("activations", graphs_.arena_bytes() + kept_ * graphs_.kept_bytes());
  memory->Add("micro-batches", input_slots() * slot_bytes_);
  memory->Add("statistics", StatisticsBytes());
  memory->Add("scratch", graphs_.scratch_bytes());
}

Status CudaReplica::PrepareKernels(const CudaReplicaBuffers& buffers) {
  kernels_ = MakeCudaKernels(context_, &notes_, comm_);
  const FlatBuffers flat{buffers.places != nullptr ? buffers.places : &model_.layout(),
                         buffers.parameters, buffers.gradients};
  return graphs_.Prepare(flat, *kernels_, *kernels_);
}

Status CudaReplica::Prepare(const CudaReplicaBuffers& buffers, const CudaStepHooks& hooks) {
  GACCD_RETURN_IF_ERROR(PrepareKernels(buffers));
  DeviceMemory memory;
  AddMemory(&memory);
  GACCD_RETURN_IF_ERROR(FitsOnGpu(memory));
  GACCD_RETURN_IF_ERROR(AttachMemory(buffers));
  buffers_ = buffers;
  hooks_ = hooks;
  return model_.update_sums() > 0 || model_.stage() ? Status::Ok() : RecordAllSteps();
}

Status CudaReplica::PrepareSizes(const std::set<std::int64_t>& micro_batches, Recompute recompute) {
  options_.micro_batches = micro_batches;
  options_.recompute = recompute;
  notes_.clear();
  steps_.clear();
  segments_.clear();
  graphs_ = {};
  kernels_.reset();
  for (DeviceBuffer* buffer : {&arena_, &scratch_, &inputs_}) *buffer = {};
  GACCD_RETURN_IF_ERROR(RecordGraphs());
  GACCD_RETURN_IF_ERROR(PrepareKernels(buffers_));
  GACCD_RETURN_IF_ERROR(AttachMemory(buffers_));
  return RecordAllSteps();
}

Status CudaReplica::RecordAllSteps() {
  for (auto& [size, training] : graphs_.all<TrainingGraph>()) {
    GACCD_RETURN_IF_ERROR(RecordSteps(size.samples, training, &steps_[size]));
  }
  return Status::Ok();
}

Status CudaReplica::AttachMemory(const CudaReplicaBuffers& buffers) {
  GACCD_ASSIGN_OR_RETURN(arena_, AllocateBytes(graphs_.arena_bytes(), "activations"));
  GACCD_ASSIGN_OR_RETURN(kept_arena_, AllocateBytes(kept_ * graphs_.kept_bytes(), "activations"));
  GACCD_ASSIGN_OR_RETURN(scratch_, AllocateBytes(graphs_.scratch_bytes(), "scratch"));
  GACCD_ASSIGN_OR_RETURN(inputs_, AllocateBytes(input_slots() * slot_bytes_, "micro-batches"));
  update_ = buffers.update;
  graphs_.Attach(arena_.data(), scratch_.data(), kept_arena_.data());
  for (auto& [size, graph] : graphs_.all<TrainingGraph>()) {
    if (graph.ids.weight == nn::kNoValue) continue;  // computed in another stage
    graph.executor->BindInput(graph.ids.weight, buffers.weight);
  }
  return AttachStatistics(buffers);
}

Status CudaReplica::RecordSteps(std::int64_t samples, PreparedGraph<TrainingGraph>& training,
                                RecordedSteps* steps) {
  for (std::size_t s = 0; s < steps->size(); ++s) {
    Bind(*training.executor, training.inputs, s);
    for (const bool first : {false, true}) {
      for (const bool last : {false, true}) {
        const MicroStepPosition place{.first = first, .last = last};
        GACCD_ASSIGN_OR_RETURN((*steps)[s][PlaceIndex(place)],
                               RecordStep(samples, training, place));
      }
    }
  }
  context_.SetOverlapsReductions(false);
  return Status::Ok();
}

Result<std::vector<CudaGraph>> CudaReplica::RecordStep(std::int64_t samples,
                                                       PreparedGraph<TrainingGraph>& training,
                                                       MicroStepPosition place) {
  Executor& executor = *training.executor;
  context_.SetOverlapsReductions(place.last);
  std::vector<CudaGraph> segments;
  for (std::size_t i = 0; i <= executor.collectives(); ++i) {
    const auto body = [&]() -> Status {
      GACCD_RETURN_IF_ERROR(
          executor.RunSegment(i, place.first, place.last ? hooks_.ready : nullptr));
      if (i < executor.collectives()) return Status::Ok();
      const auto& [loss_sum, divisor] = std::tie(training.ids.loss_sum, training.ids.divisor);
      return hooks_.finish(loss_sum != nn::kNoValue ? executor.Output<double>(loss_sum) : nullptr,
                           divisor ? executor.Output<double>(*divisor) : nullptr, samples, place);
    };
    GACCD_ASSIGN_OR_RETURN(CudaGraph segment, CudaGraph::Capture(context_.compute(), body));
    segments.push_back(std::move(segment));
  }
  return segments;
}

Status CudaReplica::Upload(const BatchView& batch, int slot, cudaStream_t stream) {
  std::byte* to = inputs_.as<std::byte>() + slot * slot_bytes_;
  if (const InputPlace& position = places_.back(); position.bytes > 0) {
    GACCD_RETURN_IF_ERROR(
        EnqueueSet(stream, batch.position, reinterpret_cast<std::int64_t*>(to + position.offset)));
  }
  for (std::size_t i = 0; i + 1 < places_.size(); ++i) {
    const InputPlace& place = places_[i];
    if (place.bytes == 0) continue;  // not read by any graph
    const bool is_tensor = i < batch.tensors.size();
    const std::int64_t row = is_tensor ? RowBytes(model_.sample().tensors[i], batch.length)
                                       : static_cast<std::int64_t>(sizeof *batch.ids);
    const std::int64_t bytes = batch.samples * row;
    if (bytes > place.bytes) return PreparedGraphs::NotPrepared(batch.size());
    const void* from = is_tensor ? batch.tensors[i] : batch.ids;
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(to + place.offset, from, static_cast<std::size_t>(bytes),
                                   cudaMemcpyHostToDevice, stream),
                   "copy of a micro-batch"));
  }
  return Status::Ok();
}

Status CudaReplica::MicroStep(BatchSize size, int slot, MicroStepPosition place) {
  GACCD_ASSIGN_OR_RETURN(auto* training, graphs_.Find<TrainingGraph>(size));
  Executor& executor = *training->executor;
  if (executor.collectives() > 0) Bind(executor, training->inputs, static_cast<std::size_t>(slot));
  const auto& segments = steps_.at(size)[static_cast<std::size_t>(slot)][PlaceIndex(place)];
  for (std::size_t i = 0; i < segments.size(); ++i) {
    if (i > 0) {
      if (hooks_.before_collective) GACCD_RETURN_IF_ERROR(hooks_.before_collective());
      GACCD_RETURN_IF_ERROR(executor.RunCollective(i - 1));
    }
    if (segments[i].nodes() == 0) continue;
    GACCD_RETURN_IF_ERROR(segments[i].Launch(context_.compute()));
  }
  return Status::Ok();
}

Status CudaReplica::Encode(BatchSize size, int slot, float* rows) {
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<EncodingGraph>(size));
  const auto& [ids, inputs, executor] = *graph;
  Bind(*executor, inputs, static_cast<std::size_t>(slot));
  GACCD_RETURN_IF_ERROR(executor->Run(true));
  return CudaStatus(cudaMemcpyAsync(rows, executor->Output<float>(ids.rows),
                                    ValueBytes(executor->graph(), ids.rows),
                                    cudaMemcpyDeviceToDevice, context_.compute()),
                    "copy of representations");
}

Status CudaReplica::Evaluate(BatchSize size, int slot, std::byte* host, const void* received) {
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<EvaluationGraph>(size));
  const auto& [ids, inputs, executor] = *graph;
  Bind(*executor, inputs, static_cast<std::size_t>(slot));
  if (ids.ends.received) executor->BindInput(*ids.ends.received, received);
  GACCD_RETURN_IF_ERROR(executor->Run(true));
  for (const ValueId output : ids.Outputs()) {
    const std::size_t bytes = ValueBytes(executor->graph(), output);
    GACCD_RETURN_IF_ERROR(
        CudaStatus(cudaMemcpyAsync(host, executor->Output<std::byte>(output), bytes,
                                   cudaMemcpyDeviceToHost, context_.compute()),
                   "copy of an evaluation"));
    host += bytes;
  }
  return Status::Ok();
}

Result<Evaluation> CudaReplica::ReadEvaluation(BatchSize size, const std::byte* host) {
  GACCD_ASSIGN_OR_RETURN(const auto* graph, graphs_.Find<EvaluationGraph>(size));
  return gaccd::ReadEvaluation(*graph, size.samples, [&](ValueId output) {
    return std::exchange(host, host + ValueBytes(graph->graph(), output));
  });
}

// CudaReplica: pipeline stages.

StageRings CudaReplica::stage_rings() const {
  return model_.stage() ? PlanStageRings(graphs_, options_.in_flight) : StageRings();
}

Status CudaReplica::RunStage(BatchSize size, const StageRun& run) {
  if (run.place < 0 || run.place >= kept_) {
    return {ErrorKind::kInternal,
            StrCat("expected a place below ", kept_, " of a micro-batch, found ", run.place)};
  }
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(size));
  const auto& [ids, inputs, executor] = *graph;
  executor->Attach(arena_.data(), scratch_.data(),
                   kept_arena_.as<std::byte>() + graphs_.kept_bytes() * run.place);
  Bind(*executor, inputs, static_cast<std::size_t>(run.slot));
  if (ids.ends.received) executor->BindInput(*ids.ends.received, run.received);
  if (ids.ends.received_gradient) {
    executor->BindInput(*ids.ends.received_gradient, run.received_gradient);
  }
  // In the last stage, forward and backward are one segment.
  const bool joined = model_.stage()->last() && run.segment == 2;
  return executor->RunSegment(joined ? 1 : static_cast<std::size_t>(run.segment), run.first);
}

Result<MutableBuffer> CudaReplica::StageMessage(Replica::Message which, BatchSize size) {
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(size));
  const std::optional<ValueId> value = MessageValue(graph->ids.ends, which);
  const bool sent = which == Replica::Message::kSent || which == Replica::Message::kSentGradient;
  void* const data =
      value && sent ? const_cast<void*>(graph->executor->Output<void>(*value)) : nullptr;
  return ValueBuffer(graph->graph(), value, data, MemoryKind::kCuda);
}

Result<MutableBuffer> CudaReplica::StageEvaluation(Replica::Message which, BatchSize size) {
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<EvaluationGraph>(size));
  const std::optional<ValueId> value = MessageValue(graph->ids.ends, which);
  const bool sent = which == Replica::Message::kSent;
  void* const data =
      value && sent ? const_cast<void*>(graph->executor->Output<void>(*value)) : nullptr;
  return ValueBuffer(graph->graph(), value, data, MemoryKind::kCuda);
}

}  // namespace gaccd
