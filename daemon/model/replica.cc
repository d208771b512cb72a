#include "daemon/model/replica.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/packed_weights.h"
#include "daemon/ops/bf16_products.h"
#include "daemon/ops/cpu_kernels.h"

namespace gaccd {

namespace {

// Without a divisor in the graph, every sample has one prediction.
LossSums SumsOf(const Executor& executor, const auto& ids, std::int64_t samples) {
  const std::optional<ValueId> loss_sum = ids.loss_sum;
  return {.loss_sum = loss_sum ? *executor.Output<double>(*loss_sum) : 0,
          .divisor =
              ids.divisor ? *executor.Output<double>(*ids.divisor) : static_cast<double>(samples)};
}

std::set<BatchSize> WholeAndCut(const std::set<std::int64_t>& samples, const SampleSpec& spec) {
  std::set<BatchSize> sizes;
  for (const std::int64_t count : samples) {
    sizes.insert({count});
    for (const std::int64_t length : spec.cuts) sizes.insert({count, length});
  }
  return sizes;
}

template <typename T>
std::vector<T> CopyOf(const Executor& executor, std::optional<ValueId> id) {
  if (!id) return {};
  const T* values = executor.Output<T>(*id);
  return {values, values + Elements(executor.graph().value(*id).spec.shape)};
}

}  // namespace

Status NotPrepared(BatchSize size) {
  return {ErrorKind::kInternal,
          StrCat("no executor was prepared for ", size.samples, " samples",
                 size.length > 0 ? StrCat(" of ", size.length, " tokens") : "")};
}

std::set<BatchSize> TrainingSizes(const Model& model, const ReplicaOptions& options) {
  std::set<BatchSize> sizes = WholeAndCut(options.micro_batches, model.sample());
  if (model.has_collectives()) sizes.insert(BatchSize{});
  return sizes;
}

std::set<BatchSize> EvaluationSizes(const Model& model, const ReplicaOptions& options) {
  return WholeAndCut(options.eval_batches, model.sample());
}

Replica::Replica(const Model& model, std::span<float> gradients, Precision precision)
    : model_(model), gradients_(gradients), precision_(precision) {}

Replica::~Replica() = default;

Result<std::unique_ptr<Replica>> Replica::Create(const Model& model, std::span<float> gradients,
                                                 const ReplicaOptions& options, Precision precision,
                                                 Communicator* comm) {
  const auto elements = static_cast<std::size_t>(model.layout().size());
  if (gradients.size() != elements) {
    return Status(ErrorKind::kInternal,
                  StrCat("gradients: expected ", elements, " elements, found ", gradients.size()));
  }
  std::unique_ptr<Replica> replica(new Replica(model, gradients, precision));
  GACCD_ASSIGN_OR_RETURN(replica->parameter_memory_,
                         HostBuffer::Allocate(elements * sizeof(float), "parameters"));
  replica->parameters_ = {reinterpret_cast<float*>(replica->parameter_memory_.data()), elements};
  GACCD_ASSIGN_OR_RETURN(replica->context_, CpuContext::Create());
  GACCD_RETURN_IF_ERROR(replica->PrepareExecutors(options, comm));
  GACCD_RETURN_IF_ERROR(replica->AttachMemory());
  return replica;
}

Status Replica::PrepareExecutors(const ReplicaOptions& options, Communicator* comm) {
  training_kernels_ =
      MakeCpuKernels(*context_, {.runs_per_update = options.micro_steps_per_update}, comm);
  // f32 weights are packed for training only: an evaluation runs too rarely to pay for it.
  evaluation_kernels_ = MakeCpuKernels(*context_, {.runs_per_update = 1});
  for (const BatchSize size : TrainingSizes(model_, options)) {
    GACCD_RETURN_IF_ERROR(
        Prepare(size, model_.RecordTraining(size), *training_kernels_, training_));
    if (!model_.contrastive() || size.samples == 0) continue;
    GACCD_RETURN_IF_ERROR(
        Prepare(size, model_.RecordEncoding(size), *training_kernels_, encoding_));
  }
  for (const BatchSize size : EvaluationSizes(model_, options)) {
    GACCD_RETURN_IF_ERROR(
        Prepare(size, model_.RecordEvaluation(size), *evaluation_kernels_, evaluation_));
  }
  return Status::Ok();
}

template <typename Ids>
Status Replica::Prepare(BatchSize size, Result<Ids> recorded, KernelFactory& kernels,
                        PreparedGraphs<Ids>& graphs) {
  GACCD_ASSIGN_OR_RETURN(Ids ids, std::move(recorded));
  if (precision_ == Precision::kBF16) GACCD_RETURN_IF_ERROR(RoundProductsToBf16(ids.graph));
  const FlatBuffers buffers{&model_.layout(), parameters_.data(), gradients_.data()};
  GACCD_ASSIGN_OR_RETURN(auto executor, Executor::Prepare(std::move(ids.graph), buffers, kernels));
  GACCD_ASSIGN_OR_RETURN(auto inputs, BindByName(ids.inputs, model_.sample()));
  graphs.emplace(size, PreparedGraph<Ids>{std::move(ids), std::move(inputs), std::move(executor)});
  return Status::Ok();
}

// All executors share one arena: they never run at the same time.
Status Replica::AttachMemory() {
  std::vector<Executor*> executors;
  for (auto& [size, entry] : training_) executors.push_back(entry.executor.get());
  for (auto& [size, entry] : encoding_) executors.push_back(entry.executor.get());
  for (auto& [size, entry] : evaluation_) executors.push_back(entry.executor.get());
  std::int64_t arena = 0;
  std::int64_t scratch = 0;
  for (const Executor* executor : executors) {
    arena = std::max(arena, executor->arena_bytes());
    scratch = std::max(scratch, executor->scratch_bytes());
  }
  GACCD_ASSIGN_OR_RETURN(arena_,
                         HostBuffer::Allocate(static_cast<std::size_t>(arena), "activations"));
  GACCD_ASSIGN_OR_RETURN(scratch_,
                         HostBuffer::Allocate(static_cast<std::size_t>(scratch), "scratch"));
  for (Executor* executor : executors) executor->Attach(arena_.data(), scratch_.data());
  if (model_.contrastive()) return Status::Ok();  // Replay() binds it
  for (auto& [size, entry] : training_) entry.executor->BindInput(entry.ids.weight, &weight_);
  return Status::Ok();
}

Status Replica::ParametersChanged() { return context_->packed_weights().Repack(); }

void Replica::ParametersChangedUpTo(std::int64_t end) {
  context_->packed_weights().RepackUpTo(parameters_.data() + end);
}

void Replica::Bind(Executor& executor, std::span<const BoundInput> inputs, const BatchView& batch) {
  for (const BoundInput& input : inputs) {
    const void* memory = nullptr;
    switch (input.from) {
      case BoundInput::From::kTensor:
        memory = batch.samples > 0 ? batch.tensors[input.tensor] : nullptr;
        break;
      case BoundInput::From::kSampleIds:
        memory = batch.ids;
        break;
      case BoundInput::From::kUpdate:
        memory = &update_;
        break;
    }
    executor.BindInput(input.value, memory);
  }
}

Result<LossSums> Replica::MicroStep(const BatchView& batch, float weight, bool first) {
  if (batch.samples == 0 && !model_.has_collectives()) {
    if (first) std::fill(gradients_.begin(), gradients_.end(), 0.0F);
    return LossSums{};
  }
  const auto found = training_.find(batch.size());
  if (found == training_.end()) return NotPrepared(batch.size());
  auto& [ids, inputs, executor] = found->second;
  weight_ = weight;
  Bind(*executor, inputs, batch);
  GACCD_RETURN_IF_ERROR(executor->Run(first));
  return SumsOf(*executor, ids, batch.samples);
}

Status Replica::Encode(const BatchView& batch, float* rows) {
  if (batch.samples == 0) return Status::Ok();
  const auto found = encoding_.find(batch.size());
  if (found == encoding_.end()) return NotPrepared(batch.size());
  auto& [ids, inputs, executor] = found->second;
  Bind(*executor, inputs, batch);
  GACCD_RETURN_IF_ERROR(executor->Run(true));
  std::copy_n(executor->Output<float>(ids.rows),
              Elements(executor->graph().value(ids.rows).spec.shape), rows);
  return Status::Ok();
}

Status Replica::Replay(const BatchView& batch, const float* gradients, bool first) {
  if (batch.samples == 0) return MicroStep(batch, 0, first).status();
  const auto found = training_.find(batch.size());
  if (found == training_.end()) return NotPrepared(batch.size());
  auto& [ids, inputs, executor] = found->second;
  Bind(*executor, inputs, batch);
  executor->BindInput(ids.weight, gradients);
  return executor->Run(first);
}

Result<Evaluation> Replica::Evaluate(const BatchView& batch) {
  const auto found = evaluation_.find(batch.size());
  if (found == evaluation_.end()) return NotPrepared(batch.size());
  auto& [ids, inputs, executor] = found->second;
  Bind(*executor, inputs, batch);
  GACCD_RETURN_IF_ERROR(executor->Run(true));
  const LossSums sums = SumsOf(*executor, ids, batch.samples);
  return Evaluation{.samples = batch.samples,
                    .loss_sum = sums.loss_sum,
                    .divisor = sums.divisor,
                    .ranks = CopyOf<std::int32_t>(*executor, ids.ranks),
                    .best = CopyOf<std::int32_t>(*executor, ids.best),
                    .prediction = CopyOf<float>(*executor, ids.prediction)};
}

std::int64_t Replica::planned_bytes() const {
  return static_cast<std::int64_t>(parameter_memory_.bytes() + gradients_.size_bytes() +
                                   arena_.bytes() + scratch_.bytes()) +
         context_->packed_weights().bytes();
}

}  // namespace gaccd
