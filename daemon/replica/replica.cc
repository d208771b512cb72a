#include "daemon/replica/replica.h"

#include <algorithm>
#include <numeric>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/packed_weights.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/product/bf16_products.h"
#include "daemon/tensor/reproducible_sum.h"

namespace gaccd {
namespace {

Result<HostBuffer> AllocateBytes(std::int64_t bytes, const char* what) {
  return HostBuffer::Allocate(static_cast<std::size_t>(bytes), what);
}

}  // namespace

Replica::Replica(const Model& model, std::span<float> gradients, const ReplicaOptions& options,
                 Precision precision, Communicator* comm)
    : model_(model), gradients_(gradients), options_(options), precision_(precision), comm_(comm) {}

Replica::~Replica() = default;

Result<std::unique_ptr<Replica>> Replica::Create(const Model& model, std::span<float> gradients,
                                                 const ReplicaOptions& options, Precision precision,
                                                 Communicator* comm, std::span<float> parameters) {
  const auto elements = static_cast<std::size_t>(model.layout().size());
  if (gradients.size() != elements || (!parameters.empty() && parameters.size() != elements)) {
    return Status(ErrorKind::kInternal,
                  StrCat("gradients: expected ", elements, " elements, found ", gradients.size(),
                         parameters.empty() ? "" : StrCat("; parameters: ", parameters.size())));
  }
  std::unique_ptr<Replica> replica(new Replica(model, gradients, options, precision, comm));
  replica->parameters_ = parameters;
  if (parameters.empty()) {
    GACCD_ASSIGN_OR_RETURN(replica->parameter_memory_,
                           HostBuffer::Allocate(elements * sizeof(float), "parameters"));
    replica->parameters_ = {reinterpret_cast<float*>(replica->parameter_memory_.data()), elements};
  }
  GACCD_ASSIGN_OR_RETURN(replica->context_, replica->MakeContext());
  GACCD_RETURN_IF_ERROR(replica->PrepareGraphs());
  return replica;
}

Result<std::unique_ptr<CpuContext>> Replica::MakeContext() const {
  return CpuContext::Create(/*f64_sums=*/precision_ == Precision::kF64Sums);
}

Status Replica::PrepareGraphs() {
  GACCD_RETURN_IF_ERROR(graphs_.Record(model_, options_, Precision::kF32, [this](Graph& graph) {
    FuseForCpu(graph);
    Status status = precision_ == Precision::kBF16 ? RoundProductsToBf16(graph) : Status::Ok();
    FuseRoundedForCpu(graph);
    return status;
  }));
  // Weights are packed if enough micro-steps use them, and other kernels may round differently.
  const std::int64_t runs = options_.any_split ? 1 : options_.micro_steps_per_update;
  training_kernels_ = MakeCpuKernels(*context_, {.runs_per_update = runs}, comm_);
  // f32 weights are packed for training only: evaluations are too rare for it to pay off.
  evaluation_kernels_ = MakeCpuKernels(*context_, {.runs_per_update = 1});
  const FlatBuffers buffers{&model_.layout(), parameters_.data(), gradients_.data()};
  GACCD_RETURN_IF_ERROR(graphs_.Prepare(buffers, *training_kernels_, *evaluation_kernels_));
  std::int64_t kept = 0;
  if (model_.update_sums() > 0) kept = options_.micro_steps_per_update * graphs_.kept_bytes();
  if (model_.stage()) kept = options_.in_flight * graphs_.kept_bytes();
  if (model_.update_sums() > 0) {
    const std::vector<std::int64_t> sums = graphs_.UpdateSumElements();
    kept_bytes_ = kept + options_.micro_steps_per_update * KeptBatchBytes(options_) +
                  static_cast<std::int64_t>(sizeof(double)) *
                      (options_.any_split ? 1 + kDoubleBins : 1) *
                      std::reduce(sums.begin(), sums.end());
  }
  if (model_.stage()) PlanStage(options_, kept);
  if (options_.only_plan) return Status::Ok();
  // Before the activations, which smaller micro-batches or recomputed blocks can make smaller.
  GACCD_RETURN_IF_ERROR(context_->packed_weights().Allocate());
  allocation_error_ = AllocateActivations(kept);
  // A pipeline stage cannot divide its micro-batches: its neighbours expect these sizes.
  if (!allocation_error_.ok()) return model_.stage() ? allocation_error_ : Status::Ok();
  graphs_.Attach(arena_.data(), scratch_.data(), kept_arena_.data());
  if (model_.contrastive()) return Status::Ok();  // bound by Replay()
  for (auto& [size, graph] : graphs_.all<TrainingGraph>()) {
    if (graph.ids.weight != nn::kNoValue) graph.executor->BindInput(graph.ids.weight, &weight_);
  }
  if (model_.stage()) return PrepareStage(options_);
  return model_.update_sums() > 0 ? PrepareSegments(options_) : Status::Ok();
}

Status Replica::AllocateActivations(std::int64_t kept) {
  GACCD_ASSIGN_OR_RETURN(arena_, AllocateBytes(graphs_.arena_bytes(), "activations"));
  GACCD_ASSIGN_OR_RETURN(scratch_, AllocateBytes(graphs_.scratch_bytes(), "scratch"));
  GACCD_ASSIGN_OR_RETURN(kept_arena_, AllocateBytes(kept, "kept activations"));
  return Status::Ok();
}

// With a new context, as the old one holds the packed weights of the previous kernels.
Status Replica::PrepareSizes(const std::set<std::int64_t>& micro_batches, Recompute recompute) {
  options_.micro_batches = micro_batches;
  options_.recompute = recompute;
  graphs_ = {};
  training_kernels_.reset();
  evaluation_kernels_.reset();
  arena_ = {};
  scratch_ = {};
  kept_arena_ = {};
  kept_.clear();
  update_sums_.clear();
  bins_.clear();
  GACCD_ASSIGN_OR_RETURN(context_, MakeContext());
  GACCD_RETURN_IF_ERROR(PrepareGraphs());
  return ParametersChanged();
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
      case BoundInput::From::kPosition:
        position_ = batch.position;
        memory = &position_;
        break;
    }
    executor.BindInput(input.value, memory);
  }
}

Result<LossSums> Replica::MicroStep(const BatchView& batch, float weight, bool first) {
  GACCD_RETURN_IF_ERROR(allocation_error_);
  if (batch.samples == 0 && !model_.has_collectives()) {
    if (first) ClearGradients();
    return LossSums{};
  }
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(batch.size()));
  const auto& [ids, inputs, executor] = *graph;
  weight_ = weight;
  Bind(*executor, inputs, batch);
  if (gradient_bins_.empty()) {
    GACCD_RETURN_IF_ERROR(executor->Run(first));
  } else {
    GACCD_RETURN_IF_ERROR(executor->Run(/*first=*/true, [this](std::size_t parameter) {
      AddGradientToBins(parameter);
      return Status::Ok();
    }));
  }
  return ReadSums(*graph, batch.samples);
}

void Replica::AddGradientToBins(std::size_t parameter) {
  const FlatEntry& entry = model_.layout().entries()[parameter];
  const auto first = static_cast<std::size_t>(entry.offset);
  const auto count = static_cast<std::size_t>(entry.elements);
  AddToBins(gradients_.subspan(first, count), gradient_bins_.subspan(first, count),
            gradient_bins_.subspan(gradients_.size() + first, count));
}

// Without a divisor in the graph, every sample has one prediction.
LossSums Replica::ReadSums(const PreparedGraph<TrainingGraph>& graph, std::int64_t samples) {
  const TrainingGraph& ids = graph.ids;
  if (ids.loss_sum == nn::kNoValue) return {};  // computed in another stage
  return {.loss_sum = *graph.executor->Output<double>(ids.loss_sum),
          .divisor = ids.divisor ? *graph.executor->Output<double>(*ids.divisor)
                                 : static_cast<double>(samples)};
}

Status Replica::Encode(const BatchView& batch, float* rows) {
  GACCD_RETURN_IF_ERROR(allocation_error_);
  if (batch.samples == 0) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<EncodingGraph>(batch.size()));
  const auto& [ids, inputs, executor] = *graph;
  Bind(*executor, inputs, batch);
  GACCD_RETURN_IF_ERROR(executor->Run(true));
  std::copy_n(executor->Output<float>(ids.rows),
              Elements(executor->graph().value(ids.rows).spec.shape), rows);
  return Status::Ok();
}

Status Replica::Replay(const BatchView& batch, const float* gradients, bool first) {
  GACCD_RETURN_IF_ERROR(allocation_error_);
  if (batch.samples == 0) return MicroStep(batch, 0, first).status();
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<TrainingGraph>(batch.size()));
  const auto& [ids, inputs, executor] = *graph;
  Bind(*executor, inputs, batch);
  executor->BindInput(ids.weight, gradients);
  return executor->Run(first);
}

Result<Evaluation> Replica::Evaluate(const BatchView& batch) {
  GACCD_RETURN_IF_ERROR(allocation_error_);
  GACCD_ASSIGN_OR_RETURN(auto* graph, graphs_.Find<EvaluationGraph>(batch.size()));
  Bind(*graph->executor, graph->inputs, batch);
  if (const auto received = graph->ids.ends.received) {
    GACCD_ASSIGN_OR_RETURN(const MutableBuffer from,
                           StageEvaluation(Message::kReceived, batch.size()));
    graph->executor->BindInput(*received, from.data);
  }
  GACCD_RETURN_IF_ERROR(graph->executor->Run(true));
  if (model_.stage() && !model_.stage()->last()) return Evaluation{};
  return ReadEvaluation(*graph, batch.samples,
                        [&](ValueId output) { return graph->executor->Output<void>(output); });
}

std::int64_t Replica::planned_bytes() const {
  std::int64_t used = 0;
  for (const std::span<float> part : UsedParts(parameters_)) {
    used += static_cast<std::int64_t>(part.size_bytes());
  }
  const std::int64_t bins =
      options_.any_split
          ? static_cast<std::int64_t>(kFloatBins * sizeof(double)) * model_.layout().size()
          : 0;
  return 2 * used + bins + graphs_.arena_bytes() + graphs_.scratch_bytes() +
         context_->packed_weights().bytes() + kept_bytes_;
}

}  // namespace gaccd
