// Replica: one rank's copy of the model, ready to run: flat parameters and gradients, and a
// prepared executor for every micro-batch size of the plan and length of its texts. Used by the
// thread that made it.
//
// The gradient is a sum: after the micro-steps of an update, gradients() holds, on this rank,
// sum over its predictions of weight * d loss / d parameters.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <vector>

#include "collectives/base/buffer.h"
#include "daemon/device/host_buffer.h"
#include "daemon/replica/model.h"
#include "daemon/replica/prepared_graphs.h"

namespace gaccd {

class Communicator;
class CpuContext;

// The place of a micro-step in its update. The first overwrites the gradients; after the last they
// are complete, bucket by bucket, and their reduction may begin.
struct StepPlace {
  bool first = false;
  bool last = false;
};

class Replica {
 public:
  // gradients: model.layout().size() elements, 64-byte aligned, owned by the caller (who reduces
  // them); both must outlive the replica, and so must `comm`, for models with collectives.
  // Parameters start as zero; `parameters`: where they are kept, memory like that of the gradients,
  // empty: in memory of the replica. kBF16: products are (ops/product/bf16_products.h). Memory for
  // activations alone that is short is no error here: see shortage().
  static Result<std::unique_ptr<Replica>> Create(const Model& model, std::span<float> gradients,
                                                 const ReplicaOptions& options,
                                                 Precision precision = Precision::kF32,
                                                 Communicator* comm = nullptr,
                                                 std::span<float> parameters = {});
  ~Replica();

  [[nodiscard]] std::span<float> parameters() { return parameters_; }
  [[nodiscard]] std::span<float> gradients() { return gradients_; }

  // NoMemory() where there is none for the activations: then nothing can be computed, and every
  // call that would gives this error, until PrepareSizes() has found it.
  [[nodiscard]] const Status& shortage() const { return shortage_; }
  // MicroStep() will be called with these sizes, in place of those before. All graphs are made
  // anew, and their memory. After an error only the destructor may be called.
  Status PrepareSizes(const std::set<std::int64_t>& micro_batches);

  // To be called after parameters() changed, before the next micro-step or evaluation.
  Status ParametersChanged();
  // May be called before it, in ascending order: the parameters before element `end` have the
  // values that it will find. They are packed while the caches hold them.
  void ParametersChangedUpTo(std::int64_t end);

  // The number of the update of the next micro-steps, for graphs that ask for it.
  void SetUpdate(std::int64_t update) { update_ = update; }

  // Forward, backward, accumulate. `first`: the first micro-step of the update, which overwrites
  // the gradients. A batch without samples only clears them, if it is the first, and runs the
  // collectives of the model with the other ranks. `weight`: of a prediction. kInternal for a size
  // that was not prepared; likewise Evaluate().
  Result<LossSums> MicroStep(const BatchView& batch, float weight, bool first);

  // The two passes of a contrastive loss. Encode: forward of one micro-batch, as in training; its
  // rows are copied to `rows` [samples, 2 width]. Replay: forward again, then backward from the
  // gradient of these rows, and accumulate as MicroStep() does. REQUIRES: model.contrastive().
  Status Encode(const BatchView& batch, float* rows);
  Status Replay(const BatchView& batch, const float* gradients, bool first);

  // Where the model has sums over the update, in place of MicroStep(): all micro-batches of this
  // rank pass segment 0, update_sum(0) becomes the sum over all ranks, and so on to the last one,
  // which gives what MicroStep() gives. A batch is copied in segment 0, later ones do not read it;
  // it keeps its activations until the update ends. REQUIRES: micro_batch <
  // micro_steps_per_update; BeginSegments() before the first one of an update.
  void BeginSegments();
  Result<LossSums> RunSegment(const BatchView& batch, std::int64_t micro_batch,
                              std::int64_t segment, float weight);
  // After segment `sum`: of the micro-batches of this rank. To be overwritten.
  [[nodiscard]] std::span<double> update_sum(std::int64_t sum) {
    return update_sums_[static_cast<std::size_t>(sum)];
  }

  // Of a stage of a pipeline, in place of MicroStep(): its forward (segment 0; of the last stage
  // the backward, too), which takes the batch and copies it, and its backward (segment 1; where it
  // is divided, segment 2 is its second part, of the last stage, too). micro_batch: below
  // ReplicaOptions::in_flight; one whose backward is over gives its place to another. Where
  // the batch has samples, what a segment receives was written before; what it sends is there until
  // the next call of this replica.
  Result<LossSums> RunStage(const BatchView& batch, std::int64_t micro_batch, std::int64_t segment,
                            float weight, bool first);
  enum class Message : std::uint8_t { kReceived, kSent, kReceivedGradient, kSentGradient };
  // Empty where this stage has no such neighbour, or the batch no samples. kInternal for a size
  // that was not prepared.
  Result<MutableBuffer> StageMessage(Message which, BatchSize size, std::int64_t micro_batch);
  // The size of the batch at this place.
  [[nodiscard]] BatchSize StageSize(std::int64_t micro_batch) const {
    return kept_[static_cast<std::size_t>(micro_batch)].batch.size();
  }
  // The same of an evaluation: Evaluate() reads kReceived and makes kSent. Its answer comes from
  // the last stage.
  Result<MutableBuffer> StageEvaluation(Message which, BatchSize size);
  // The flat elements that this stage uses, to be cleared or sent: of its own part and of what it
  // shares.
  [[nodiscard]] std::vector<std::span<float>> UsedOf(std::span<float> whole) const;

  // Of models with running statistics (Model::running_statistics), once an update, after the
  // reduction of the gradients. First this: statistics of micro-batches leave gradients(), where
  // zeros remain.
  void TakeMicroStatistics();
  // The sums of the update go into the running statistics. ParametersChanged() comes later.
  void AddToRunningStatistics();
  // Whether all of them would be finite; the same on all ranks.
  [[nodiscard]] bool RunningStatisticsStayFinite();

  // Allocates what it returns; the calls above allocate nothing.
  Result<Evaluation> Evaluate(const BatchView& batch);

  // Everything planned before the run: parameters, gradients, arena, scratch, packed weights, kept
  // micro-batches. With ReplicaOptions::only_plan what it would be.
  [[nodiscard]] std::int64_t planned_bytes() const;
  // Of them those of micro-batches that are kept until the update ends, and of its sums.
  [[nodiscard]] std::int64_t kept_bytes() const { return kept_bytes_; }

 private:
  Replica(const Model& model, std::span<float> gradients, const ReplicaOptions& options,
          Precision precision, Communicator* comm);
  Status PrepareGraphs();
  Status TakeMemory(std::int64_t kept);
  void Bind(Executor& executor, std::span<const BoundInput> inputs, const BatchView& batch);
  [[nodiscard]] static LossSums ReadSums(const PreparedGraph<TrainingGraph>& graph,
                                         std::int64_t samples);
  Status PrepareSegments(const ReplicaOptions& options);
  Status PlanStage(const ReplicaOptions& options, std::int64_t kept);
  [[nodiscard]] std::int64_t StageInputs(std::int64_t in_flight) const;
  Status PrepareStage(const ReplicaOptions& options);
  void ClearGradients();
  // Of one micro-batch that is kept until the update ends.
  [[nodiscard]] std::int64_t BytesOfKept(const ReplicaOptions& options) const;
  Status CheckPlace(std::int64_t micro_batch, std::int64_t segment) const;

  // call(group, sums, momentum, RunningStatistics) of each batch norm.
  void ForEachRunning(auto&& call);

  // A micro-batch of an update that runs segment by segment.
  struct KeptBatch {
    BatchMemory memory;
    BatchView batch;  // in it
  };

  const Model& model_;
  std::span<float> gradients_;
  ReplicaOptions options_;
  const Precision precision_;
  Communicator* const comm_;
  Status shortage_;
  HostBuffer parameter_memory_;  // unless they are kept elsewhere
  std::span<float> parameters_;
  std::unique_ptr<CpuContext> context_;
  std::unique_ptr<KernelFactory> training_kernels_;
  std::unique_ptr<KernelFactory> evaluation_kernels_;
  PreparedGraphs graphs_;
  HostBuffer arena_;
  HostBuffer kept_arena_;  // of every micro-batch, where they run segment by segment
  std::vector<KeptBatch> kept_;
  std::int64_t kept_bytes_ = 0;
  std::vector<std::vector<double>> update_sums_;
  std::vector<std::vector<double>> part_sums_;  // by layer: of its micro-batches or runs
  HostBuffer scratch_;
  HostBuffer stage_inputs_;  // of the kept micro-batches, then of an evaluation, then a gradient
  std::int64_t stage_input_bytes_ = 0;  // of each
  // What the graphs' inputs of these names look at.
  float weight_ = 0;
  std::int64_t update_ = 0;
  std::int64_t position_ = 0;
};

}  // namespace gaccd
