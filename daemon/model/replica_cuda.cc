#include "daemon/model/replica_cuda.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/ops/cuda_kernels.h"

namespace gaccd {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t Aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t BytesOf(const Value& value) {
  return Elements(value.spec.shape) * static_cast<std::int64_t>(SizeOf(value.spec.dtype));
}

std::size_t PlaceIndex(StepPlace place) { return (place.first ? 1U : 0U) + (place.last ? 2U : 0U); }

Result<DeviceBuffer> AllocateBytes(std::int64_t bytes, std::string_view what) {
  return DeviceBuffer::Allocate(static_cast<std::size_t>(bytes), what);
}

}  // namespace

CudaReplica::~CudaReplica() = default;

Result<std::unique_ptr<CudaReplica>> CudaReplica::Create(CudaContext& context, const Model& model,
                                                         const ReplicaOptions& options,
                                                         Precision precision) {
  std::unique_ptr<CudaReplica> replica(new CudaReplica(context, model));
  GACCD_RETURN_IF_ERROR(replica->RecordGraphs(options, precision));
  return replica;
}

Status CudaReplica::RecordGraphs(const ReplicaOptions& options, Precision precision) {
  for (const std::int64_t samples : options.micro_batches) {
    GACCD_ASSIGN_OR_RETURN(TrainingGraph ids, model_.RecordTraining(samples, precision));
    GACCD_RETURN_IF_ERROR(CheckCudaKernels(ids.graph));
    FuseForCuda(ids.graph);
    CountMemory(ids.graph, ids.features, ids.target);
    training_[samples].ids = std::move(ids);
  }
  for (const std::int64_t samples : options.eval_batches) {
    GACCD_ASSIGN_OR_RETURN(EvaluationGraph ids, model_.RecordEvaluation(samples, precision));
    GACCD_RETURN_IF_ERROR(CheckCudaKernels(ids.graph));
    FuseForCuda(ids.graph);
    CountMemory(ids.graph, ids.features, ids.target);
    counts_correct_ = ids.correct.has_value();
    testing_[samples].ids = std::move(ids);
  }
  return Status::Ok();
}

// Arena and input slots are as large as the largest batch needs.
void CudaReplica::CountMemory(const Graph& graph, ValueId features, ValueId target) {
  const Value& feature = graph.value(features);
  feature_row_ = BytesOf(feature) / feature.spec.shape[0];
  target_row_ = BytesOf(graph.value(target)) / feature.spec.shape[0];
  feature_bytes_ = std::max(feature_bytes_, Aligned(BytesOf(feature)));
  target_bytes_ = std::max(target_bytes_, Aligned(BytesOf(graph.value(target))));
  arena_bytes_ = std::max(arena_bytes_, PlanMemory(graph).arena_bytes);
}

void CudaReplica::AddMemory(DeviceMemory* memory) const {
  memory->Add("activations", arena_bytes_);
  memory->Add("micro-batches", kInputSlots * (feature_bytes_ + target_bytes_));
  memory->Add("scratch", scratch_bytes_);
}

Status CudaReplica::Prepare(const CudaReplicaBuffers& buffers, const CudaStepHooks& hooks) {
  GACCD_RETURN_IF_ERROR(PrepareExecutors(buffers));
  DeviceMemory memory;
  AddMemory(&memory);
  GACCD_RETURN_IF_ERROR(FitsOnGpu(memory));
  GACCD_RETURN_IF_ERROR(AttachMemory(buffers));
  for (auto& [samples, training] : training_) {
    GACCD_RETURN_IF_ERROR(RecordSteps(samples, training, hooks));
  }
  return Status::Ok();
}

Status CudaReplica::PrepareExecutors(const CudaReplicaBuffers& buffers) {
  kernels_ = MakeCudaKernels(context_, &notes_);
  const FlatBuffers flat{&model_.layout(), buffers.parameters, buffers.gradients};
  for (auto& [samples, entry] : training_) {
    GACCD_ASSIGN_OR_RETURN(entry.executor,
                           Executor::Prepare(std::move(entry.ids.graph), flat, *kernels_));
  }
  for (auto& [samples, entry] : testing_) {
    GACCD_ASSIGN_OR_RETURN(entry.executor,
                           Executor::Prepare(std::move(entry.ids.graph), flat, *kernels_));
  }
  for (const Executor* executor : Executors()) {
    scratch_bytes_ = std::max(scratch_bytes_, executor->scratch_bytes());
  }
  return Status::Ok();
}

std::vector<Executor*> CudaReplica::Executors() const {
  std::vector<Executor*> executors;
  for (const auto& [samples, entry] : training_) executors.push_back(entry.executor.get());
  for (const auto& [samples, entry] : testing_) executors.push_back(entry.executor.get());
  return executors;
}

// All executors share one arena: they run one after another on one stream.
Status CudaReplica::AttachMemory(const CudaReplicaBuffers& buffers) {
  GACCD_ASSIGN_OR_RETURN(arena_, AllocateBytes(arena_bytes_, "activations"));
  GACCD_ASSIGN_OR_RETURN(scratch_, AllocateBytes(scratch_bytes_, "scratch"));
  GACCD_ASSIGN_OR_RETURN(
      inputs_, AllocateBytes(kInputSlots * (feature_bytes_ + target_bytes_), "micro-batches"));
  auto* at = inputs_.as<std::byte>();
  for (InputSlot& slot : slots_) {
    slot.features = at;
    slot.target = at + feature_bytes_;
    at += feature_bytes_ + target_bytes_;
  }
  for (Executor* executor : Executors()) executor->Attach(arena_.data(), scratch_.data());
  for (auto& [samples, entry] : training_) {
    entry.executor->BindInput(entry.ids.weight, buffers.weight);
  }
  return Status::Ok();
}

Status CudaReplica::RecordSteps(std::int64_t samples, Training& training,
                                const CudaStepHooks& hooks) {
  Executor& executor = *training.executor;
  const auto* loss_sum = executor.Output<double>(training.ids.loss_sum);
  for (std::size_t s = 0; s < slots_.size(); ++s) {
    executor.BindInput(training.ids.features, slots_[s].features);
    executor.BindInput(training.ids.target, slots_[s].target);
    for (const bool first : {false, true}) {
      for (const bool last : {false, true}) {
        const StepPlace place{.first = first, .last = last};
        context_.SetBesideReductions(last);
        const auto body = [&]() -> Status {
          if (last && hooks.ready) {
            GACCD_RETURN_IF_ERROR(executor.Run(first, hooks.ready));
          } else {
            GACCD_RETURN_IF_ERROR(executor.Run(first));
          }
          return hooks.finish(loss_sum, samples, place);
        };
        GACCD_ASSIGN_OR_RETURN(training.graphs[s][PlaceIndex(place)],
                               CudaGraph::Capture(context_.compute(), body));
      }
    }
  }
  context_.SetBesideReductions(false);
  return Status::Ok();
}

Status CudaReplica::Upload(const BatchView& batch, int slot, cudaStream_t stream) {
  const InputSlot& to = slots_[static_cast<std::size_t>(slot)];
  const void* target =
      batch.labels != nullptr ? static_cast<const void*>(batch.labels) : batch.targets;
  const auto feature_bytes = static_cast<std::size_t>(batch.samples * feature_row_);
  const auto target_bytes = static_cast<std::size_t>(batch.samples * target_row_);
  if (static_cast<std::int64_t>(feature_bytes) > feature_bytes_) return NotPrepared(batch.samples);
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(to.features, batch.features, feature_bytes, cudaMemcpyHostToDevice, stream),
      "copy of features"));
  return CudaStatus(
      cudaMemcpyAsync(to.target, target, target_bytes, cudaMemcpyHostToDevice, stream),
      "copy of targets");
}

Status CudaReplica::MicroStep(std::int64_t samples, int slot, StepPlace place) {
  const auto found = training_.find(samples);
  if (found == training_.end()) return NotPrepared(samples);
  return found->second.graphs[static_cast<std::size_t>(slot)][PlaceIndex(place)].Launch(
      context_.compute());
}

Status CudaReplica::Evaluate(std::int64_t samples, int slot, double* results) {
  const auto found = testing_.find(samples);
  if (found == testing_.end()) return NotPrepared(samples);
  auto& [ids, executor] = found->second;
  executor->BindInput(ids.features, slots_[static_cast<std::size_t>(slot)].features);
  executor->BindInput(ids.target, slots_[static_cast<std::size_t>(slot)].target);
  GACCD_RETURN_IF_ERROR(executor->Run(true));
  const auto copy = [&](double* to, ValueId from) {
    return CudaStatus(cudaMemcpyAsync(to, executor->Output<double>(from), sizeof(double),
                                      cudaMemcpyDeviceToDevice, context_.compute()),
                      "copy of an evaluation");
  };
  GACCD_RETURN_IF_ERROR(copy(results, ids.loss_sum));
  return ids.correct ? copy(results + 1, *ids.correct) : Status::Ok();
}

}  // namespace gaccd
