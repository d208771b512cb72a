// Replica: one rank's copy of the model on the CPU, ready to run: flat parameters and gradients,
// and a prepared executor for every micro-batch size and text length of the plan. Used by the
// thread that made it.
//
// The gradient is a sum: after the micro-steps of an update, gradients() is the sum over this
// rank's predictions of weight * d loss / d parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/base/memory.h"
#include "daemon/replica/model.h"
#include "daemon/replica/prepared_graphs.h"

namespace gaccd {

class Communicator;
class CpuContext;

// Position of a micro-step in its update. The first one overwrites the gradients; after the last
// one they are complete, bucket by bucket, and may be reduced.
struct MicroStepPosition {
  bool first = false;
  bool last = false;
};

class Replica {
 public:
  // gradients: model.layout().size() elements, 64-byte aligned, owned and reduced by the caller.
  // `gradients` and `model` must outlive the replica, as must `comm`, which models with collectives
  // need. Parameters start as zero; `parameters`: memory for them, like `gradients`; empty: the
  // replica allocates it. kBF16: matrix products use bf16 (ops/product/bf16_products.h); kF64Sums:
  // products and convolutions sum in f64. Lack of memory for activations is not an error here: see
  // allocation_error().
  static Result<std::unique_ptr<Replica>> Create(const Model& model, std::span<float> gradients,
                                                 const ReplicaOptions& options,
                                                 Precision precision = Precision::kF32,
                                                 Communicator* comm = nullptr,
                                                 std::span<float> parameters = {});
  ~Replica();

  [[nodiscard]] std::span<float> parameters() { return parameters_; }
  [[nodiscard]] std::span<float> gradients() { return gradients_; }

  // For options.any_split: every micro-step overwrites gradients() and adds them to these bins,
  // kFloatBins * gradients().size() of them (tensor/reproducible_sum.h), owned by the caller.
  void SetGradientBins(std::span<double> bins) { gradient_bins_ = bins; }

  // NoMemory() if the activations could not be allocated. Then every call that computes returns
  // this error until PrepareSizes() succeeds.
  [[nodiscard]] const Status& allocation_error() const { return allocation_error_; }
  // Replaces the sizes for MicroStep() and ReplicaOptions::recompute. Prepares all graphs and their
  // memory again. After an error only the destructor may be called. REQUIRES: no micro-batch is
  // kept, neither of an update that runs segment by segment nor in a pipeline stage.
  Status PrepareSizes(const std::set<std::int64_t>& micro_batches, Recompute recompute);

  // Call after parameters() changed, before the next micro-step or evaluation. Fails if oneDNN
  // does.
  Status ParametersChanged();
  // Optional, before ParametersChanged(), in ascending order of `end`: the parameters before
  // element `end` are final. They are packed while they are in the caches.
  void ParametersChangedUpTo(std::int64_t end);

  // The number of the update for the next micro-steps, for graphs that read it.
  void SetUpdate(std::int64_t update) { update_ = update; }

  // Forward, backward, accumulate. first: the first micro-step of the update, which overwrites the
  // gradients. A batch without samples only clears them, if it is the first, and runs the
  // collectives of the model with the other ranks. weight: of one prediction. kInternal if the size
  // was not prepared; likewise Evaluate().
  Result<LossSums> MicroStep(const BatchView& batch, float weight, bool first);

  // The two passes of a contrastive loss. Encode: forward of one micro-batch, as in training;
  // copies its rows to `rows` [samples, 2 width]. Replay: forward again, backward from the gradient
  // of these rows, accumulate as in MicroStep(). REQUIRES: model.contrastive().
  Status Encode(const BatchView& batch, float* rows);
  Status Replay(const BatchView& batch, const float* gradients, bool first);

  // Replaces MicroStep() if the model has sums over the update: all micro-batches of this rank run
  // segment 0, update_sum(0) is summed over all ranks, and so on. The last segment returns what
  // MicroStep() returns. Segment 0 copies the batch; later segments do not read it. Activations are
  // kept until the update ends. REQUIRES: micro_batch < micro_steps_per_update; BeginSegments()
  // before the first segment of an update.
  void BeginSegments();
  Result<LossSums> RunSegment(const BatchView& batch, std::int64_t micro_batch,
                              std::int64_t segment, float weight);
  // After segment `sum`: the sum over the micro-batches of this rank, or its bins if
  // options.any_split. The caller overwrites it with the sum over all ranks and calls
  // UpdateSumReduced().
  [[nodiscard]] std::span<double> update_sum(std::int64_t sum) {
    return (options_.any_split ? bins_ : update_sums_)[static_cast<std::size_t>(sum)];
  }
  void UpdateSumReduced(std::int64_t sum);

  // Replaces MicroStep() in a pipeline stage. Segment 0: forward, and in the last stage also the
  // backward; copies the batch. Segment 1: backward. Segment 2, if the backward is divided: its
  // second part, also in the last stage. micro_batch: below ReplicaOptions::in_flight; a
  // micro-batch whose backward is over frees its place. If the batch has samples, received messages
  // must be written before the segment that reads them; sent messages are valid until the next call
  // of this replica.
  Result<LossSums> RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment,
                            float weight, bool first);
  enum class Message : std::uint8_t { kReceived, kSent, kReceivedGradient, kSentGradient };
  // Empty if this stage has no such neighbour or the batch has no samples. kInternal if the size
  // was not prepared.
  Result<MutableBuffer> StageMessage(Message which, BatchSize size, std::int64_t micro_batch);
  // Size of the batch at this place.
  [[nodiscard]] BatchSize StageSize(std::int64_t micro_batch) const {
    return kept_[static_cast<std::size_t>(micro_batch)].batch.size();
  }
  // The messages of an evaluation: Evaluate() reads kReceived and writes kSent. The last stage
  // returns the result.
  Result<MutableBuffer> StageEvaluation(Message which, BatchSize size);
  // The flat elements that this stage uses, to be cleared or sent: its own part and shared
  // parameters.
  [[nodiscard]] std::vector<std::span<float>> UsedParts(std::span<float> whole) const;

  // For models with running statistics (Model::running_statistics): moves statistics of
  // micro-batches out of gradients() and leaves zeros there. Call first, once per update, after the
  // reduction of the gradients.
  void MoveMicroStatistics();
  // Adds the sums of the update to the running statistics. Call ParametersChanged() afterwards.
  void AddToRunningStatistics();
  // Whether all running statistics would be finite; the same on all ranks.
  [[nodiscard]] bool RunningStatisticsStayFinite();

  // Allocates its result; the functions above allocate nothing.
  Result<Evaluation> Evaluate(const BatchView& batch);

  // Memory planned before the run: parameters, gradients, arena, scratch, packed weights, kept
  // micro-batches. With ReplicaOptions::only_plan, what it would be.
  [[nodiscard]] std::int64_t planned_bytes() const;
  // The part of it for micro-batches that are kept until the update ends, and for sums over the
  // update.
  [[nodiscard]] std::int64_t kept_bytes() const { return kept_bytes_; }

 private:
  Replica(const Model& model, std::span<float> gradients, const ReplicaOptions& options,
          Precision precision, Communicator* comm);
  [[nodiscard]] Result<std::unique_ptr<CpuContext>> MakeContext() const;
  Status PrepareGraphs();
  Status AllocateActivations(std::int64_t kept);
  void Bind(Executor& executor, std::span<const BoundInput> inputs, const BatchView& batch);
  [[nodiscard]] static LossSums ReadSums(const PreparedGraph<TrainingGraph>& graph,
                                         std::int64_t samples);
  Status PrepareSegments(const ReplicaOptions& options);
  void PlanStage(const ReplicaOptions& options, std::int64_t kept);
  [[nodiscard]] std::int64_t StageInputs(std::int64_t in_flight) const;
  Status PrepareStage(const ReplicaOptions& options);
  void ClearGradients();
  void AddGradientToBins(std::size_t parameter);
  void AddSegmentToBins(const Executor& executor, std::int64_t segment);
  // Bytes of one micro-batch that is kept until the update ends.
  [[nodiscard]] std::int64_t KeptBatchBytes(const ReplicaOptions& options) const;
  Status CheckPlace(std::int64_t micro_batch, std::int64_t segment) const;

  // Calls call(group, sums, momentum, RunningStatistics) for each batch norm.
  void ForEachRunning(auto&& call);

  // A micro-batch of an update that runs segment by segment.
  struct KeptBatch {
    BatchMemory memory;
    BatchView batch;  // refers to `memory`
  };

  const Model& model_;
  std::span<float> gradients_;
  ReplicaOptions options_;
  const Precision precision_;
  Communicator* const comm_;
  Status allocation_error_;
  HostBuffer parameter_memory_;  // empty if the caller provides them
  std::span<float> parameters_;
  std::unique_ptr<CpuContext> context_;
  std::unique_ptr<KernelFactory> training_kernels_;
  std::unique_ptr<KernelFactory> evaluation_kernels_;
  PreparedGraphs graphs_;
  HostBuffer arena_;
  HostBuffer kept_arena_;  // for each micro-batch, if graphs run segment by segment
  std::vector<KeptBatch> kept_;
  std::int64_t kept_bytes_ = 0;
  std::vector<std::vector<double>> update_sums_;
  std::vector<std::vector<double>> bins_;  // of update_sums_, if options_.any_split
  std::span<double> gradient_bins_;
  std::vector<std::vector<double>> part_sums_;  // by layer: of its micro-batches or runs
  HostBuffer scratch_;
  // received values of the kept micro-batches, then of an evaluation, then gradients
  HostBuffer stage_inputs_;
  std::int64_t stage_input_bytes_ = 0;  // per message
  // Sources of the graph inputs with these names.
  float weight_ = 0;
  std::int64_t update_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace gaccd
