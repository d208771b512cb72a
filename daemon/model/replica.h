// Replica: one rank's copy of the model, ready to run: flat parameters and gradients, and a
// prepared executor for every micro-batch size of the plan and length of its texts. Used by the
// thread that made it.
//
// The gradient is a sum: after the micro-steps of an update, gradients() holds, on this rank,
// sum over its predictions of weight * d loss / d parameters.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "daemon/autograd/executor.h"
#include "daemon/device/host_buffer.h"
#include "daemon/model/graph_inputs.h"
#include "daemon/model/model.h"

namespace gaccd {

class Communicator;
class CpuContext;

struct ReplicaOptions {
  std::set<std::int64_t> micro_batches = {};  // sizes >= 1 that MicroStep() will be called with
  std::set<std::int64_t> eval_batches = {};   // the same for Evaluate()
  std::int64_t micro_steps_per_update = 1;
  // The most samples of an update, over all ranks and of this one: what a contrastive loss holds
  // at once.
  std::int64_t effective_batch = 0;
  std::int64_t rank_samples = 0;
};

// What a loss is made of, without a weight: loss_sum / divisor is the mean.
struct LossSums {
  double loss_sum = 0;
  double divisor = 0;  // predictions with a label, or the sum of their weights
};

struct Evaluation {
  std::int64_t samples = 0;
  double loss_sum = 0;
  double divisor = 0;  // as in LossSums
  // For class labels, one a prediction: see ops/label_ranks.h.
  std::vector<std::int32_t> ranks;
  std::vector<std::int32_t> best;
  std::vector<float> prediction;  // for targets: [samples, width]; of Model::MakeForInference()
};

// The place of a micro-step in its update. The first overwrites the gradients; after the last they
// are complete, bucket by bucket, and their reduction may begin.
struct StepPlace {
  bool first = false;
  bool last = false;
};

// A graph for batches of one size, ready to run.
template <typename Ids>
struct PreparedGraph {
  Ids ids;  // its graph has moved into the executor
  std::vector<BoundInput> inputs;
  std::unique_ptr<Executor> executor;
};
template <typename Ids>
using PreparedGraphs = std::map<BatchSize, PreparedGraph<Ids>>;

// The sizes to record graphs for: those of the options, whole and cut; and no samples, where a rank
// without them runs the collectives of the model all the same.
[[nodiscard]] std::set<BatchSize> TrainingSizes(const Model& model, const ReplicaOptions& options);
[[nodiscard]] std::set<BatchSize> EvaluationSizes(const Model& model,
                                                  const ReplicaOptions& options);

// The error of a micro-batch of a size that is not among them.
[[nodiscard]] Status NotPrepared(BatchSize size);

class Replica {
 public:
  // gradients: model.layout().size() elements, 64-byte aligned, owned by the caller (who reduces
  // them); both must outlive the replica, and so must `comm`, for models with collectives.
  // Parameters start as zero. kBF16: products are (ops/bf16_products.h).
  static Result<std::unique_ptr<Replica>> Create(const Model& model, std::span<float> gradients,
                                                 const ReplicaOptions& options,
                                                 Precision precision = Precision::kF32,
                                                 Communicator* comm = nullptr);
  ~Replica();

  [[nodiscard]] std::span<float> parameters() { return parameters_; }
  [[nodiscard]] std::span<float> gradients() { return gradients_; }

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

  // Allocates what it returns; the calls above allocate nothing.
  Result<Evaluation> Evaluate(const BatchView& batch);

  // Everything planned before the run: parameters, gradients, arena, scratch, packed weights.
  [[nodiscard]] std::int64_t planned_bytes() const;

 private:
  Replica(const Model& model, std::span<float> gradients, Precision precision);
  Status PrepareExecutors(const ReplicaOptions& options, Communicator* comm);
  template <typename Ids>
  Status Prepare(BatchSize size, Result<Ids> recorded, KernelFactory& kernels,
                 PreparedGraphs<Ids>& graphs);
  Status AttachMemory();
  void Bind(Executor& executor, std::span<const BoundInput> inputs, const BatchView& batch);

  const Model& model_;
  std::span<float> gradients_;
  Precision precision_;
  HostBuffer parameter_memory_;
  std::span<float> parameters_;
  std::unique_ptr<CpuContext> context_;
  std::unique_ptr<KernelFactory> training_kernels_;
  std::unique_ptr<KernelFactory> evaluation_kernels_;
  PreparedGraphs<TrainingGraph> training_;
  PreparedGraphs<EncodingGraph> encoding_;
  PreparedGraphs<EvaluationGraph> evaluation_;
  HostBuffer arena_;
  HostBuffer scratch_;
  // What the graphs' inputs `weight` and `update` look at.
  float weight_ = 0;
  std::int64_t update_ = 0;
};

}  // namespace gaccd
