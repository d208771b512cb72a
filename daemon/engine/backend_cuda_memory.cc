// CudaBackend: creation, memory, destruction.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "collectives/bootstrap/agree.h"
#include "daemon/device/cuda/matmul_choices.h"
#include "daemon/engine/backend_cuda.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

// Shorter than the time after which the silence of this rank ends the other ranks.
constexpr std::chrono::milliseconds kFinishLimit{1'000};

// Host bytes for results copied from the GPU.
std::int64_t ResultBytes(const CudaReplica& replica) {
  return static_cast<std::int64_t>(std::max(sizeof(UpdateSums), replica.evaluation_bytes()));
}

}  // namespace

// Frees nothing while the GPU may still use it: freeing memory or destroying a stream waits for
// kernels. Does not wait for kernels that may never end: those of an aborted communicator leave the
// GPU soon or, with windows, never.
bool CudaBackend::Finish() {
  if (context_ == nullptr) return true;
  std::vector<cudaStream_t> streams = {context_->copy(), context_->compute(), context_->reduce()};
  if (pipeline_ != nullptr) std::ranges::copy(pipeline_->streams(), std::back_inserter(streams));
  for (cudaStream_t stream : streams) {
    const Status ended = waiter_.WaitForStream(stream, "end of the engine");
    if (ended.ok()) continue;
    // One communicator has failed; the streams may also wait for ranks of the others.
    if (pipeline_ != nullptr) {
      pipeline_->CancelPending(ended);
      comm_.CancelPending(ended);
    }
    if (!DeviceWaiter::FinishesWithin(stream, kFinishLimit)) return false;
  }
  return true;
}

Status CudaBackend::Create() {
  // Collective first, so that a rank that fails alone does not leave the others waiting in it.
  const Status divided = DivideState();
  const Status mine = divided.ok() ? CreateLocally() : divided;
  const Status gradients = divided.ok() ? AllocateGradients() : divided;
  GACCD_RETURN_IF_ERROR(ReduceOnce(mine.ok() ? gradients : mine));
  GACCD_RETURN_IF_ERROR(FitsOnGpu(PlannedMemory(/*gradients=*/false)));
  GACCD_RETURN_IF_ERROR(PrepareReplica());
  if (options_.measure_process) {
    GACCD_ASSIGN_OR_RETURN(process_bytes_, ResidentBytes());
  }
  return Status::Ok();
}

Status CudaBackend::DivideState() {
  const FlatLayout& layout = model_.layout();
  const CudaShards::Options options{.mode = options_.shard,
                                    .state_buffers = StateElements(options_.optimizer, 1),
                                    .overlap = overlaps()};
  if (model_.stage()) {
    auto pipeline = CudaPipeline::Make(comm_, *model_.stage(), layout, options.state_buffers);
    GACCD_RETURN_IF_ERROR(AgreeOn(comm_, pipeline.status()).status);
    pipeline_ = *std::move(pipeline);
    GACCD_ASSIGN_OR_RETURN(const FlatLayout of_stage, PartLayout(layout, divided()));
    GACCD_ASSIGN_OR_RETURN(
        shards_, CudaShards::Make(pipeline_->exchange().same_stage(), of_stage, options, waiter_));
  } else {
    GACCD_ASSIGN_OR_RETURN(shards_, CudaShards::Make(comm_, layout, options, waiter_));
  }
  own_ = shards_ == nullptr ? divided() : shards_->own().ShiftedBy(divided());
  return Status::Ok();
}

Status CudaBackend::CreateLocally() {
  if (reduces() && comm_.memory() != MemoryKind::kCuda) {
    return {ErrorKind::kInternal, StrCat("engine: expected a communicator of GPUs for ",
                                         comm_.size(), " ranks, found ", comm_.name())};
  }
  GACCD_ASSIGN_OR_RETURN(
      context_, CudaContext::Create(
                    {.device = options_.choice.gpu,
                     .numerics = {.tf32 = options_.numerics.tf32,
                                  .deterministic = options_.numerics.deterministic,
                                  .time_algorithms = options_.choice.time_algorithms},
                     .reduction_multiprocessors =
                         reduces() && overlaps() ? options_.choice.reduction_multiprocessors : 0,
                     .choices_folder = options_.choice.choices_folder,
                     .cublaslt = options_.choice.cublaslt,
                     .dnn = options_.choice.dnn}));
  GACCD_ASSIGN_OR_RETURN(replica_, CudaReplica::Create(*context_, model_, options_.replica,
                                                       options_.numerics.precision, &comm_));
  if (const auto loss = model_.contrastive()) {
    rows_ = std::make_unique<CudaRows>(*loss, options_.replica, context_->compute());
  }
  return FitsOnGpu(PlannedMemory());
}

// NCCL allocates channel memory at the first collective of each algorithm; do that before the job's
// memory is checked. Collective; reduces nothing if a rank has failed. Returns this rank's status;
// the caller shares it with the other ranks.
Status CudaBackend::ReduceOnce(const Status& mine) {
  if (!reduces()) return mine;
  std::int64_t failed = mine.ok() ? 0 : 1;
  const MutableBuffer counted = View(std::span(&failed, 1));
  const Status agreed = comm_.AllReduceSum(counted, counted);
  GACCD_RETURN_IF_ERROR(mine);
  GACCD_RETURN_IF_ERROR(agreed);
  if (failed > 0) return Status::Ok();
  if (shards_ != nullptr) {
    GACCD_RETURN_IF_ERROR(shards_->ExchangeOnce(gradients_, context_->reduce()));
  }
  if (pipeline_ != nullptr) return StartPipeline();
  // NCCL uses different algorithms for small and large messages. The gradients are all zero.
  const std::size_t largest = overlaps() ? options_.choice.bucket_elements : elements();
  for (const std::size_t most : {std::size_t{1}, largest}) {
    const MutableBuffer part{gradients_, std::min(most, elements()), DType::kF32,
                             MemoryKind::kCuda};
    GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(part, part, {context_->reduce()}));
  }
  return waiter_.WaitForStream(context_->reduce(), "first reduction");
}

DeviceMemory CudaBackend::PlannedMemory(bool gradients) const {
  const auto floats = [](std::size_t count) {
    return static_cast<std::int64_t>(count * sizeof(float));
  };
  DeviceMemory memory;
  memory.Add("parameters", floats(elements()));
  if (activations() != DType::kF32) memory.Add("parameters", floats(elements()) / 2);
  if (gradients) memory.Add("gradients", floats(elements()));
  memory.Add("optimiser state", floats(state_elements()));
  replica_->AddMemory(&memory);
  memory.Add("messages", replica_->stage_rings().bytes());
  if (rows_ != nullptr) rows_->AddMemory(&memory);
  memory.Add("control",
             static_cast<std::int64_t>(words_bytes() +
                                       NormScratchBytes(static_cast<std::int64_t>(elements()))));
  memory.Add("control", CudaOptimizer::TableBytes(OptimizerRanges::Make(model_.layout(), own_),
                                                  own_.elements));
  if (shards_ != nullptr) memory.Add("control", shards_->bytes());
  return memory;
}

EngineMemory CudaBackend::memory() const {
  return {.host_bytes = slots_->bytes() + static_cast<std::int64_t>(results_.bytes()),
          .device_bytes = PlannedMemory().bytes() + context_->device_bytes(),
          .kept_bytes = replica_->kept_bytes(),
          .process_bytes = process_bytes_};
}

Result<EngineMemory> CudaBackend::PlanMemory(const ReplicaOptions& sizes) {
  GACCD_ASSIGN_OR_RETURN(
      const auto other,
      CudaReplica::Create(*context_, model_, sizes, options_.numerics.precision, &comm_));
  const auto planned = [&]() -> EngineMemory {
    DeviceMemory own;
    DeviceMemory others;
    replica_->AddMemory(&own);
    other->AddMemory(&others);
    if (rows_ != nullptr) {
      rows_->AddMemory(&own);
      CudaRows(*model_.contrastive(), sizes, context_->compute()).AddMemory(&others);
    }
    own.Add("messages", replica_->stage_rings().bytes());
    others.Add("messages", other->stage_rings().bytes());
    EngineMemory all = memory();
    all.device_bytes += others.bytes() - own.bytes();
    all.kept_bytes = other->kept_bytes();
    all.host_bytes += ResultBytes(*other) - ResultBytes(*replica_);
    return all;
  };
  // Kernels are prepared on operands of full size, which may not fit if the engine does not.
  GACCD_ASSIGN_OR_RETURN(const std::int64_t free, FreeDeviceBytes());
  const EngineMemory without_scratch = planned();
  if (without_scratch.device_bytes > free + memory().device_bytes) return without_scratch;
  GACCD_RETURN_IF_ERROR(other->PrepareKernels(
      {.parameters = parameters_.as<float>(), .gradients = gradients_, .places = &places()}));
  return planned();
}

Status CudaBackend::AllocateGradients() {
  const std::size_t bytes = elements() * sizeof(float);
  if (comm_.memory() == MemoryKind::kCuda) {
    // Ranks with the same part of the model.
    Communicator& ranks = pipeline_ != nullptr ? pipeline_->exchange().same_stage() : comm_;
    GACCD_ASSIGN_OR_RETURN(shared_gradients_, shards_ != nullptr
                                                  ? shards_->exchange().Allocate(bytes)
                                                  : ranks.Allocate(bytes));
    gradients_ = static_cast<float*>(shared_gradients_->data());
    return Status::Ok();
  }
  GACCD_ASSIGN_OR_RETURN(own_gradients_, DeviceBuffer::Allocate(bytes, "gradients"));
  gradients_ = own_gradients_.as<float>();
  return Status::Ok();
}

Status CudaBackend::PrepareReplica() {
  const std::size_t bytes = elements() * sizeof(float);
  GACCD_ASSIGN_OR_RETURN(parameters_, DeviceBuffer::Allocate(bytes, "parameters"));
  GACCD_ASSIGN_OR_RETURN(
      state_, DeviceBuffer::Allocate(state_elements() * sizeof(float), "optimiser state"));
  GACCD_ASSIGN_OR_RETURN(words_, DeviceBuffer::Allocate(words_bytes(), "control"));
  GACCD_ASSIGN_OR_RETURN(
      norm_scratch_,
      DeviceBuffer::Allocate(NormScratchBytes(static_cast<std::int64_t>(elements())), "norm"));
  if (activations() != DType::kF32) {
    GACCD_ASSIGN_OR_RETURN(half_copy_, DeviceBuffer::Allocate(bytes / 2, "copy of parameters"));
    context_->SetHalfCopy(parameters_.as<float>(), places().size(), half_copy_.data());
  }
  if (shards_ != nullptr) {
    GACCD_RETURN_IF_ERROR(shards_->Allocate(context_->compute(), graph_,
                                            {.parameters = parameters_.as<float>(),
                                             .gradients = gradients_,
                                             .norm_scratch = norm_scratch_.data()}));
  }
  GACCD_RETURN_IF_ERROR(CreateOptimizer());
  if (rows_ != nullptr) GACCD_RETURN_IF_ERROR(rows_->Allocate());
  CudaStepHooks hooks;
  if (pipeline_ != nullptr) {
    GACCD_RETURN_IF_ERROR(RecordStage());
  } else if (reduces()) {
    GACCD_ASSIGN_OR_RETURN(
        reduction_,
        CudaReduction::Create(comm_, *context_, graph_, model_.layout(), gradients_, control(),
                              {.bucket_elements = options_.choice.bucket_elements,
                               .control_word_count = options_.control_word_count,
                               .overlap = overlaps(),
                               .shards = exchange()}));
    hooks.ready = [this](std::size_t parameter) { return reduction_->Ready(parameter); };
  }
  if (!overlaps()) {
    hooks.before_collective = [this] {
      return waiter_.WaitForStream(context_->compute(), "micro-step before a collective operation");
    };
  }
  hooks.finish = [this](const double* loss_sum, const double* divisor, std::int64_t samples,
                        MicroStepPosition place) -> Status {
    GACCD_RETURN_IF_ERROR(EndMicroStep(loss_sum, divisor, samples, place));
    return place.last && reduction_ != nullptr ? reduction_->EndRecording() : Status::Ok();
  };
  GACCD_RETURN_IF_ERROR(replica_->Prepare(
      {.parameters = parameters_.as<float>(),
       .gradients = gradients_,
       .weight = rows_ != nullptr ? rows_->gradient() : &control()->inputs.prediction_weight,
       .update = &control()->inputs.update,
       .places = &places()},
      hooks));
  LogNotes();
  if (model_.update_sums() > 0) {
    kept_.resize(static_cast<std::size_t>(options_.replica.micro_steps_per_update));
    kept_slots_.resize(kept_.size());
  }
  if (pipeline_ != nullptr) kept_.resize(static_cast<std::size_t>(options_.replica.in_flight));
  GACCD_ASSIGN_OR_RETURN(uploads_, BatchUploads::Create(*context_, *replica_, waiter_));
  GACCD_ASSIGN_OR_RETURN(slots_, CudaSlots::Create(options_.control_word_count));
  GACCD_ASSIGN_OR_RETURN(
      results_,
      PinnedBuffer::Allocate(static_cast<std::size_t>(ResultBytes(*replica_)), "evaluation"));
  return Status::Ok();
}

Status CudaBackend::CreateOptimizer() {
  const std::int64_t first = own_.first - divided().first;
  CudaOptimizer::Buffers buffers{.parameters = parameters_.as<float>() + first,
                                 .gradient = gradients_ + first,
                                 .state = state_.as<float>(),
                                 .copy = half_copy_.data(),
                                 .copy_type = activations(),
                                 .elements = own_.elements};
  // The copy of all parameters is made when they are gathered.
  if (shards_ != nullptr) buffers.copy = nullptr;
  GACCD_ASSIGN_OR_RETURN(
      optimizer_, CudaOptimizer::Create(options_.optimizer,
                                        OptimizerRanges::Make(model_.layout(), own_), buffers));
  return Status::Ok();
}

void CudaBackend::LogNotes() {
  for (const std::string& note : replica_->notes()) LogInfo(note);
  MatmulChoices& choices = context_->choices();
  if (choices.timed() > 0) {
    LogInfo(StrCat("timed the algorithms of ", choices.timed(), " matrix products",
                   choices.path().empty() ? "" : "; later runs take them from ", choices.path()));
  }
  choices.Save();
  for (const std::string& note : context_->choices().DrainNotes()) LogInfo(note);
  for (const std::string& warning : context_->choices().DrainWarnings()) LogWarning(warning);
  for (const std::string& warning : context_->DrainWarnings()) LogWarning(warning);
}

Result<BackendPtr> MakeCudaBackend(Communicator& comm, const Model& model,
                                   const EngineOptions& options) {
  if (options.replica.any_split) {
    return Status(ErrorKind::kConfig,
                  "--bits=any-split: GPUs are not supported with it yet, expected "
                  "--device=cpu");
  }
  auto* const backend = new CudaBackend(comm, model, options);
  BackendPtr owner(backend);
  GACCD_RETURN_IF_ERROR(backend->Create());
  return owner;
}

}  // namespace gaccd
