// How the engine on a GPU comes to be, its memory, and what goes in and out of it.
#include <algorithm>
#include <chrono>
#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/matmul_choices.h"
#include "daemon/device/host_buffer.h"
#include "daemon/engine/engine_checks.h"
#include "daemon/engine/engine_cuda.h"
#include "daemon/optim/digest.h"
#include "daemon/telemetry/log.h"

namespace gaccd {
namespace {

// Less than it takes until the silence of this rank ends the others.
constexpr std::chrono::milliseconds kTimeToLeave{1'000};

}  // namespace

// Nothing is freed while the GPU may still work on it, and nothing is waited for that may never
// end: a communicator that has given up takes its kernels off the GPU soon or, with windows, not at
// all.
CudaEngine::~CudaEngine() {
  if (context_ == nullptr) return;
  for (cudaStream_t stream : {context_->copy(), context_->compute(), context_->reduce()}) {
    if (waiter_.WaitForStream(stream, "end of the engine").ok()) continue;
    if (DeviceWaiter::EndsWithin(stream, kTimeToLeave)) continue;
    LeaveToTheProcess();
    return;
  }
}

// To free memory of the GPU would wait for its kernels, as would the end of a stream. The end of
// the process frees it all.
void CudaEngine::LeaveToTheProcess() {
  (void)new auto(std::tuple(std::move(context_), std::move(parameters_), std::move(half_copy_),
                            std::move(shared_gradients_), std::move(own_gradients_),
                            std::move(state_), std::move(words_), std::move(norm_scratch_),
                            std::move(evaluation_), std::move(host_memory_), std::move(reduction_),
                            std::move(replica_), std::move(contrast_), std::move(optimizer_),
                            std::move(uploads_), std::move(records_)));
}

Status CudaEngine::Create() {
  // Collective first, so that a rank that fails alone does not leave the others waiting in it.
  const Status mine = CreateLocally();
  const Status gradients = AllocateGradients();
  GACCD_RETURN_IF_ERROR(ReduceOnce(mine.ok() ? gradients : mine));
  GACCD_RETURN_IF_ERROR(FitsOnGpu(PlannedMemory(/*gradients=*/false)));
  GACCD_RETURN_IF_ERROR(PrepareReplica());
  if (options_.measure_process) {
    GACCD_ASSIGN_OR_RETURN(process_bytes_, ResidentBytes());
  }
  return Status::Ok();
}

Status CudaEngine::CreateLocally() {
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
                     .sdpa = options_.choice.sdpa}));
  GACCD_ASSIGN_OR_RETURN(replica_, CudaReplica::Create(*context_, model_, options_.replica,
                                                       options_.numerics.precision, &comm_));
  if (const auto loss = model_.contrastive()) {
    contrast_ = std::make_unique<CudaContrast>(*loss, options_.replica, context_->compute());
  }
  return FitsOnGpu(PlannedMemory());
}

// NCCL allocates memory for its channels at the first collective of each algorithm: before the
// memory of the job is checked. Collective; reduces nothing if a rank has failed. Returns this
// rank's status: the caller tells the other ranks.
Status CudaEngine::ReduceOnce(const Status& mine) {
  if (!reduces()) return mine;
  std::int64_t failed = mine.ok() ? 0 : 1;
  const MutableBuffer counted = View(std::span(&failed, 1));
  const Status agreed = comm_.AllReduceSum(counted, counted);
  GACCD_RETURN_IF_ERROR(mine);
  GACCD_RETURN_IF_ERROR(agreed);
  if (failed > 0) return Status::Ok();
  // NCCL takes different algorithms for small and for large messages. The gradients are all zero.
  const std::size_t largest = overlaps() ? options_.choice.bucket_elements : elements();
  for (const std::size_t most : {std::size_t{1}, largest}) {
    const MutableBuffer part{gradients_, std::min(most, elements()), DType::kF32,
                             MemoryKind::kCuda};
    GACCD_RETURN_IF_ERROR(comm_.AllReduceSum(part, part, {context_->reduce()}));
  }
  return waiter_.WaitForStream(context_->reduce(), "first reduction");
}

DeviceMemory CudaEngine::PlannedMemory(bool gradients) const {
  const auto floats = [](std::size_t count) {
    return static_cast<std::int64_t>(count * sizeof(float));
  };
  DeviceMemory memory;
  memory.Add("parameters", floats(elements()));
  if (activations() != DType::kF32) memory.Add("parameters", floats(elements()) / 2);
  if (gradients) memory.Add("gradients", floats(elements()));
  memory.Add("optimiser state", floats(state_elements()));
  replica_->AddMemory(&memory);
  if (contrast_ != nullptr) contrast_->AddMemory(&memory);
  memory.Add("control", static_cast<std::int64_t>(words_bytes() + NormScratchBytes()));
  memory.Add("control", CudaOptimizer::TableBytes(OptimizerRanges::Of(model_.layout()),
                                                  model_.layout().size()));
  return memory;
}

EngineMemory CudaEngine::memory() const {
  return {.host_bytes = records_->bytes() + static_cast<std::int64_t>(evaluation_.bytes()) +
                        (contrast_ != nullptr ? contrast_->host_bytes() : 0),
          .device_bytes = PlannedMemory().bytes() + context_->device_bytes(),
          .process_bytes = process_bytes_};
}

Status CudaEngine::AllocateGradients() {
  const std::size_t bytes = elements() * sizeof(float);
  if (comm_.memory() == MemoryKind::kCuda) {
    GACCD_ASSIGN_OR_RETURN(shared_gradients_, comm_.Allocate(bytes));
    gradients_ = static_cast<float*>(shared_gradients_->data());
    return Status::Ok();
  }
  GACCD_ASSIGN_OR_RETURN(own_gradients_, DeviceBuffer::Allocate(bytes, "gradients"));
  gradients_ = own_gradients_.as<float>();
  return Status::Ok();
}

Status CudaEngine::PrepareReplica() {
  const std::size_t bytes = elements() * sizeof(float);
  GACCD_ASSIGN_OR_RETURN(parameters_, DeviceBuffer::Allocate(bytes, "parameters"));
  GACCD_ASSIGN_OR_RETURN(
      state_, DeviceBuffer::Allocate(state_elements() * sizeof(float), "optimiser state"));
  GACCD_ASSIGN_OR_RETURN(words_, DeviceBuffer::Allocate(words_bytes(), "control"));
  GACCD_ASSIGN_OR_RETURN(norm_scratch_, DeviceBuffer::Allocate(NormScratchBytes(), "norm"));
  if (activations() != DType::kF32) {
    GACCD_ASSIGN_OR_RETURN(half_copy_, DeviceBuffer::Allocate(bytes / 2, "copy of parameters"));
    context_->SetHalfCopy(parameters_.as<float>(), model_.layout().size(), half_copy_.data());
  }
  GACCD_ASSIGN_OR_RETURN(
      optimizer_, CudaOptimizer::Create(options_.optimizer, OptimizerRanges::Of(model_.layout()),
                                        {.parameters = parameters_.as<float>(),
                                         .gradient = gradients_,
                                         .state = state_.as<float>(),
                                         .copy = half_copy_.data(),
                                         .copy_type = activations(),
                                         .elements = model_.layout().size()}));
  if (contrast_ != nullptr) GACCD_RETURN_IF_ERROR(contrast_->Allocate());
  CudaStepHooks hooks;
  if (reduces()) {
    GACCD_ASSIGN_OR_RETURN(
        reduction_, CudaReduction::Create(comm_, *context_, model_.layout(), gradients_, control(),
                                          {.bucket_elements = options_.choice.bucket_elements,
                                           .control_word_count = options_.control_word_count,
                                           .overlap = overlaps()}));
    hooks.ready = [this](std::size_t parameter) { return reduction_->Ready(parameter); };
  }
  if (!overlaps()) {
    hooks.before_collective = [this] {
      return waiter_.WaitForStream(context_->compute(), "micro-step before a collective operation");
    };
  }
  hooks.finish = [this](const double* loss_sum, const double* divisor, std::int64_t samples,
                        StepPlace place) -> Status {
    GACCD_RETURN_IF_ERROR(Finish(loss_sum, divisor, samples, place));
    return place.last && reduction_ != nullptr ? reduction_->EndOfRecording() : Status::Ok();
  };
  GACCD_RETURN_IF_ERROR(
      replica_->Prepare({.parameters = parameters_.as<float>(),
                         .gradients = gradients_,
                         .weight = contrast_ != nullptr ? contrast_->gradient()
                                                        : &control()->inputs.prediction_weight,
                         .update = &control()->inputs.update},
                        hooks));
  for (const std::string& note : replica_->notes()) LogInfo(note);
  context_->choices().Save();
  for (const std::string& note : context_->choices().TakeNotes()) LogInfo(note);
  for (const std::string& warning : context_->choices().TakeWarnings()) LogWarning(warning);
  GACCD_ASSIGN_OR_RETURN(uploads_, BatchUploads::Create(*context_, *replica_, waiter_));
  GACCD_ASSIGN_OR_RETURN(records_, UpdateRecords::Create(options_.control_word_count));
  // Probe() reads its loss there, too.
  GACCD_ASSIGN_OR_RETURN(
      evaluation_,
      PinnedBuffer::Allocate(std::max(sizeof(double), replica_->evaluation_bytes()), "evaluation"));
  return Status::Ok();
}

Status CudaEngine::CopyIn(std::string_view what, std::span<const float> from, float* to,
                          std::size_t elements) {
  GACCD_RETURN_IF_ERROR(CheckCount(what, elements, from.size()));
  if (from.empty()) return Status::Ok();
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(to, from.data(), from.size_bytes(),
                                                   cudaMemcpyHostToDevice, context_->compute()),
                                   what));
  return waiter_.WaitForStream(context_->compute(), what);
}

Status CudaEngine::CopyOut(std::string_view what, const float* from, std::size_t elements,
                           std::span<float> to) {
  GACCD_RETURN_IF_ERROR(CheckCount(what, elements, to.size()));
  if (to.empty()) return Status::Ok();
  // A copy to memory that is not page-locked blocks; what it would wait for is waited for here.
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(context_->compute(), what));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaMemcpyAsync(to.data(), from, to.size_bytes(),
                                                   cudaMemcpyDeviceToHost, context_->compute()),
                                   what));
  return waiter_.WaitForStream(context_->compute(), what);
}

Status CudaEngine::SetParameters(std::span<const float> parameters) {
  GACCD_RETURN_IF_ERROR(CopyIn("parameters", parameters, parameters_.as<float>(), elements()));
  if (activations() == DType::kF32) return Status::Ok();
  return CastTo(activations(), context_->compute(), parameters_.as<float>(), model_.layout().size(),
                half_copy_.data());
}

Status CudaEngine::GetParameters(std::span<float> parameters) {
  return CopyOut("parameters", parameters_.as<float>(), elements(), parameters);
}

Status CudaEngine::ChangeParameters(const std::function<Status(std::span<float>)>& change) {
  std::vector<float> parameters(elements());
  GACCD_RETURN_IF_ERROR(GetParameters(parameters));
  GACCD_RETURN_IF_ERROR(change(parameters));
  return SetParameters(parameters);
}

Status CudaEngine::SetOptimizer(std::span<const float> state, std::int64_t updates) {
  GACCD_RETURN_IF_ERROR(CopyIn("optimiser state", state, state_.as<float>(), state_elements()));
  optimizer_->set_updates(updates);
  return Status::Ok();
}

Status CudaEngine::GetGradients(std::span<float> gradients) {
  GACCD_RETURN_IF_ERROR(CopyOut("gradients", gradients_, elements(), gradients));
  for (float& gradient : gradients) gradient = static_cast<float>(gradient * correction_);
  return Status::Ok();
}

Status CudaEngine::Read(EngineBuffer buffer, std::int64_t first, std::span<float> out) {
  const bool state = buffer == EngineBuffer::kOptimizer;
  GACCD_RETURN_IF_ERROR(CheckRange(first, out.size(), state ? state_elements() : elements()));
  const float* from = state                                 ? state_.as<float>()
                      : buffer == EngineBuffer::kParameters ? parameters_.as<float>()
                                                            : gradients_;
  return CopyOut("state for a checkpoint", from + first, out.size(), out);
}

Result<WindowShare> CudaEngine::Window() {
  UpdateSums sums;
  cudaStream_t stream = context_->compute();
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(stream, "window"));
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(&sums, &control()->sums, sizeof sums, cudaMemcpyDeviceToHost, stream),
      "window"));
  GACCD_RETURN_IF_ERROR(waiter_.WaitForStream(stream, "window"));
  return WindowShare{.samples = static_cast<std::int64_t>(sums.samples),
                     .loss_sum = sums.loss,
                     .divisor = sums.divisor};
}

Status CudaEngine::SetWindow(std::span<const float> gradients, const WindowShare& share) {
  GACCD_RETURN_IF_ERROR(CopyIn("accumulators", gradients, gradients_, elements()));
  const UpdateSums sums{.loss = share.loss_sum,
                        .divisor = share.divisor,
                        .samples = static_cast<double>(share.samples)};
  cudaStream_t stream = context_->compute();
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(&control()->sums, &sums, sizeof sums, cudaMemcpyHostToDevice, stream),
      "window"));
  records_->current().counted = share.samples;
  return waiter_.WaitForStream(stream, "window");
}

Result<std::uint64_t> CudaEngine::Digest() {
  constexpr std::size_t kPart = std::size_t{1} << 20;  // values; even
  std::vector<float> part(std::min(kPart, elements()));
  std::uint64_t digest = 0;
  for (std::size_t first = 0; first < elements(); first += kPart) {
    const auto values = std::span(part).first(std::min(kPart, elements() - first));
    GACCD_RETURN_IF_ERROR(
        CopyOut("parameters for a digest", parameters_.as<float>() + first, values.size(), values));
    digest += DigestOf(values, static_cast<std::int64_t>(first));
  }
  return digest;
}

Result<std::byte*> CudaEngine::HostMemory(std::size_t bytes) {
  GACCD_ASSIGN_OR_RETURN(PinnedBuffer memory, PinnedBuffer::Allocate(bytes, "micro-batches"));
  host_memory_.push_back(std::move(memory));
  return host_memory_.back().as<std::byte>();
}

Result<std::unique_ptr<Engine>> MakeCudaEngine(Communicator& comm, const Model& model,
                                               const EngineOptions& options) {
  auto engine = std::make_unique<CudaEngine>(comm, model, options);
  GACCD_RETURN_IF_ERROR(engine->Create());
  return std::unique_ptr<Engine>(std::move(engine));
}

}  // namespace gaccd
