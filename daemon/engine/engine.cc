#include "daemon/engine/engine.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/engine/engine_checks.h"
#include "daemon/optim/measure.h"
#include "daemon/optim/optimizer.h"

namespace gaccd {

Status CheckElementCount(std::string_view what, std::size_t expected, std::size_t found) {
  if (expected == found) return Status::Ok();
  return {ErrorKind::kInternal, StrCat(what, ": expected ", expected, " elements, found ", found)};
}

Status CheckRange(std::int64_t first, std::size_t count, std::size_t elements) {
  if (first >= 0 && static_cast<std::size_t>(first) <= elements &&
      count <= elements - static_cast<std::size_t>(first)) {
    return Status::Ok();
  }
  return {ErrorKind::kInternal, StrCat("expected a range within ", elements, " elements, found ",
                                       count, " from ", first, " on")};
}

Result<EngineMemory> Backend::PlanMemory(const ReplicaOptions& /*sizes*/) {
  return Status(ErrorKind::kInternal, StrCat(device(), ": cannot plan memory for other sizes"));
}

Status Backend::RunStage(const BatchView& /*batch*/, std::int64_t /*micro_batch*/,
                         std::int64_t /*segment*/) {
  return {ErrorKind::kInternal, StrCat(device(), ": has no pipelines")};
}

Result<std::uint64_t> Backend::DigestAllStages() {
  return Status(ErrorKind::kInternal, StrCat(device(), ": has no pipelines"));
}

Status Backend::PrepareSizes(const std::set<std::int64_t>& /*micro_batches*/,
                             Recompute /*recompute*/) {
  return {ErrorKind::kInternal, StrCat(device(), ": cannot change its micro-batch sizes")};
}

Engine::Engine(Communicator& comm, const Model& model, const EngineOptions& options,
               BackendPtr backend)
    : comm_(comm),
      model_(model),
      options_(options),
      backend_(std::move(backend)),
      divided_(model, options.replica, options.choice.refuses_memory, *backend_) {
  for (std::size_t i = 0; i < updates_.size(); ++i) updates_[i].slot = backend_->Slot(i);
  if (const auto loss = model.contrastive()) {
    contrastive_.emplace(*loss, options.replica.effective_batch, options.replica.rank_samples,
                         options.numerics.precision == Precision::kF64Sums);
    limit_ = {loss->log_scale, static_cast<float>(contrastive_->max_log_scale())};
  }
}

EngineMemory Engine::memory() const {
  EngineMemory memory = backend_->memory();
  if (const auto loss = model_.contrastive()) {
    const ReplicaOptions& sizes = options_.replica;
    memory.host_bytes +=
        ContrastiveWindow::PlannedBytes(*loss, sizes.effective_batch, sizes.rank_samples);
  }
  return memory;
}

Result<EngineMemory> Engine::PlanMemory(const ReplicaOptions& sizes) {
  GACCD_ASSIGN_OR_RETURN(EngineMemory memory, backend_->PlanMemory(sizes));
  if (const auto loss = model_.contrastive()) {
    memory.host_bytes +=
        ContrastiveWindow::PlannedBytes(*loss, sizes.effective_batch, sizes.rank_samples);
  }
  return memory;
}

std::size_t Engine::Elements(EngineBuffer buffer) const {
  const FlatLayout& layout = model_.layout();
  return static_cast<std::size_t>(buffer == EngineBuffer::kOptimizer
                                      ? StateElements(options_.optimizer, layout.trainable_size())
                                      : layout.size());
}

Status Engine::SetParameters(std::span<const float> parameters) {
  constexpr EngineBuffer kBuffer = EngineBuffer::kParameters;
  GACCD_RETURN_IF_ERROR(CheckElementCount("parameters", Elements(kBuffer), parameters.size()));
  GACCD_RETURN_IF_ERROR(backend_->CopyIn("parameters", kBuffer, parameters));
  return backend_->ParametersChanged();
}

Status Engine::GetParameters(std::span<float> parameters) {
  constexpr EngineBuffer kBuffer = EngineBuffer::kParameters;
  GACCD_RETURN_IF_ERROR(CheckElementCount("parameters", Elements(kBuffer), parameters.size()));
  return backend_->CopyOut("parameters", kBuffer, 0, parameters);
}

Status Engine::ChangeParameters(const std::function<Status(std::span<float>)>& change) {
  if (const std::span<float> own = backend_->host_parameters(); !own.empty()) {
    GACCD_RETURN_IF_ERROR(change(own));
    return backend_->ParametersChanged();
  }
  std::vector<float> parameters(Elements(EngineBuffer::kParameters));
  GACCD_RETURN_IF_ERROR(GetParameters(parameters));
  GACCD_RETURN_IF_ERROR(change(parameters));
  return SetParameters(parameters);
}

Status Engine::SetOptimizer(std::span<const float> state, std::int64_t updates) {
  constexpr EngineBuffer kBuffer = EngineBuffer::kOptimizer;
  GACCD_RETURN_IF_ERROR(CheckElementCount("optimiser state", Elements(kBuffer), state.size()));
  GACCD_RETURN_IF_ERROR(backend_->CopyIn("optimiser state", kBuffer, state));
  backend_->set_updates(updates);
  return Status::Ok();
}

Status Engine::GetGradients(std::span<float> gradients) {
  constexpr EngineBuffer kBuffer = EngineBuffer::kGradients;
  GACCD_RETURN_IF_ERROR(CheckElementCount("gradients", Elements(kBuffer), gradients.size()));
  GACCD_RETURN_IF_ERROR(backend_->CopyOut("gradients", kBuffer, 0, gradients));
  for (float& gradient : gradients) gradient = static_cast<float>(gradient * correction_);
  return Status::Ok();
}

Result<std::uint64_t> Engine::Digest() {
  if (model_.stage()) return backend_->DigestAllStages();
  if (const std::span<float> own = backend_->host_parameters(); !own.empty())
    return ComputeDigest(own);
  constexpr std::size_t kPart = std::size_t{1} << 20;  // values; even
  const std::size_t elements = Elements(EngineBuffer::kParameters);
  std::vector<float> part(std::min(kPart, elements));
  std::uint64_t digest = 0;
  for (std::size_t begin = 0; begin < elements; begin += kPart) {
    const auto values = std::span(part).first(std::min(kPart, elements - begin));
    const auto first = static_cast<std::int64_t>(begin);
    GACCD_RETURN_IF_ERROR(
        backend_->CopyOut("parameters for a digest", EngineBuffer::kParameters, first, values));
    digest += ComputeDigest(values, first);
  }
  return digest;
}

Status Engine::Read(EngineBuffer buffer, std::int64_t first, std::span<float> out) {
  GACCD_RETURN_IF_ERROR(CheckRange(first, out.size(), Elements(buffer)));
  return backend_->CopyOut("state for a checkpoint", buffer, first, out);
}

int Engine::updates_in_flight() const {
  const bool none = backend_->immediate() || options_.tolerate_nonfinite;
  return none ? 0 : static_cast<int>(Backend::kSlots) - 1;
}

std::int64_t Engine::optimizer_updates() const {
  const std::size_t last = (oldest_ + count_ - 1) % updates_.size();
  return open() ? updates_[last].optimizer_updates : backend_->updates();
}

Result<std::unique_ptr<Engine>> MakeEngine(Communicator& comm, const Model& model,
                                           const EngineOptions& options) {
  GACCD_ASSIGN_OR_RETURN(BackendPtr backend, MakeBackend(comm, model, options));
  auto engine = std::make_unique<Engine>(comm, model, options, std::move(backend));
  GACCD_RETURN_IF_ERROR(engine->divided_steps().RetryAllocation());
  return engine;
}

Result<BackendPtr> MakeBackend(Communicator& comm, const Model& model,
                               const EngineOptions& options) {
  switch (options.choice.device) {
    case Device::kCpu:
      return MakeCpuBackend(comm, model, options);
    case Device::kCuda:
      return MakeCudaBackend(comm, model, options);
    case Device::kAuto:
      break;
  }
  return Status(ErrorKind::kInternal,
                StrCat("engine: expected cpu or cuda, found ", Name(options.choice.device)));
}

}  // namespace gaccd
