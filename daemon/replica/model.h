// Model: the network of a job and its loss, checked against the data. Records graphs.
// Immutable after Make(), SetDropoutSeed(), ApplyRules() and SetStage(); then thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "daemon/autograd/graph.h"
#include "daemon/autograd/stage.h"
#include "daemon/config/job.h"
#include "daemon/models/network.h"
#include "daemon/nn/recorder.h"
#include "daemon/replica/pipeline_stage.h"
#include "daemon/tensor/flat_layout.h"
#include "daemon/tensor/sample.h"

namespace gaccd {

// Forward, backward and accumulation of one micro-step, simplified.
struct TrainingGraph {
  Graph graph;
  std::vector<nn::GraphInput> inputs;  // tensors of the sample, by name
  // Input f32 [1]: weight of one prediction. With a contrastive loss: f32 [samples, 2 width], the
  // gradient of the representations.
  ValueId weight;
  // Output f64 [1]: unweighted sum of the loss over the predictions. None with a contrastive loss.
  ValueId loss_sum;
  // Output f64 [1]: number of predictions with a label, or the sum of their weights. None: all
  // count as 1. Always set for class labels.
  std::optional<ValueId> divisor;
  std::vector<nn::RunningUpdate> running = {};  // of the update, for running statistics
  std::vector<ValueId> block_ends = {};         // of the model (nn::Recorder::EndBlock())
  // Set in a pipeline stage. Only the last stage has a weight, a loss and a divisor.
  StageEnds ends = {};
};

// The forward half of a TrainingGraph with a contrastive loss, with the same random numbers.
struct EncodingGraph {
  Graph graph;
  std::vector<nn::GraphInput> inputs;
  ValueId rows;  // output f32 [samples, 2 width]
};

// Properties of a model with a contrastive loss (ops/loss/info_nce.h).
struct ContrastiveModel {
  std::int64_t width = 0;
  std::int64_t log_scale = 0;  // element of the flat buffers that holds log t
  bool learns_scale = true;    // false: t is frozen
  double max_scale = 0;        // upper limit of t; 0: no limit
};

// Forward only.
struct EvaluationGraph {
  Graph graph;
  std::vector<nn::GraphInput> inputs;
  std::optional<ValueId> loss_sum;  // loss_sum and divisor as in training; none: only a prediction
  std::optional<ValueId> divisor;
  // Outputs for metrics. Class labels: i32 [predictions], see ops/loss/label_ranks.h. Targets: f32
  // [samples, width].
  std::optional<ValueId> ranks;
  std::optional<ValueId> best;
  std::optional<ValueId> prediction;
  StageEnds ends = {};  // set in a pipeline stage; only the last one has the fields above

  // The outputs that exist, in this order.
  [[nodiscard]] std::vector<ValueId> Outputs() const;
};

// What a model can compute from samples without labels or targets.
enum class InferenceOutput : std::uint8_t {
  kPrediction,  // logits, or the values that are compared with targets
  kEmbeddings,  // Network::RecordEmbedding()
};

// Type of the activations on a GPU.
[[nodiscard]] constexpr DType ActivationDType(Precision precision) {
  if (precision == Precision::kBF16) return DType::kBF16;
  return precision == Precision::kFP16 ? DType::kFP16 : DType::kF32;
}

class Model {
 public:
  // kConfig if a layer does not accept the output of the previous one, or the loss does not match
  // the data; the message contains the layer and both shapes.
  static Result<Model> Make(const ModelSpec& spec, const SampleSpec& sample);
  // label_smoothing: of softmax_cross_entropy, in training.
  static Result<Model> Make(std::shared_ptr<const Network> network, LossKind loss,
                            const SampleSpec& sample, double label_smoothing = 0);
  // A model for inference only: RecordEvaluation() records this output as
  // EvaluationGraph::prediction, without a loss. kConfig if the architecture does not support this
  // output.
  static Result<Model> MakeForInference(const ModelSpec& spec, const SampleSpec& sample,
                                        InferenceOutput answer);
  // Makes a model with example samples instead of the data's, to query shapes and functions.
  static Result<Model> MakeWithoutData(const ModelSpec& spec);

  // Seed of dropout masks. Call before anything is recorded.
  void SetDropoutSeed(std::uint64_t seed) { dropout_seed_ = seed; }

  // Applies the job's rules for groups and frozen parameters (tensor/group_rules.h). Call before
  // anything is recorded.
  Status ApplyRules(const OptimizerSpec& optimizer);

  // Makes this model a pipeline stage, which records only the graphs of that stage. blocks: number
  // of blocks of each stage, at least 1; their sum is the size of BlockFlops(). Call last, before
  // anything is recorded. kConfig if the model cannot be cut there, or uses a feature that
  // pipelines do not support.
  Status SetStage(std::vector<std::int64_t> blocks, std::size_t stage,
                  bool divide_backward = false);
  [[nodiscard]] const std::optional<PipelineStage>& stage() const { return stage_; }  // or none
  [[nodiscard]] Model WithAllStages() const;  // a copy that is not a pipeline stage
  // Floating-point operations of one sample's forward and backward, by block at which a pipeline
  // can be cut. Records graphs.
  [[nodiscard]] Result<std::vector<double>> BlockFlops() const;
  // Number of those blocks that a first stage needs to have something to train. Records graphs.
  [[nodiscard]] Result<std::int64_t> LeastFirstBlocks() const;

  [[nodiscard]] const FlatLayout& layout() const { return layout_; }
  // Spec of a batch for this model; without cuts if the network does not ignore padding.
  [[nodiscard]] const SampleSpec& sample() const { return sample_; }
  // Predictions per sample, labelled or not: 1, or the number of tokens of its sequence.
  [[nodiscard]] std::int64_t predictions() const { return predictions_; }
  // Shape of the prediction of one sample: [width], or [T, width] for tokens. REQUIRES:
  // MakeForInference().
  [[nodiscard]] const Shape& prediction_shape() const { return prediction_shape_; }
  // The loss `output` has the count of each sample in the divisor.
  [[nodiscard]] bool output_has_counts() const { return output_has_counts_; }
  // Unit of the loss divisor: "samples", "tokens", or "weights". weighted: false if all are 1.
  [[nodiscard]] std::string_view divisor_unit(bool weighted = true) const;

  // kBF16, kFP16: the features are cast once; all values up to the logits or the prediction, and
  // their gradients, have this type; losses and parameter gradients are f32 (ops/product/linear.h).
  // For GPUs: on CPUs only matrix products use bf16 (ops/product/bf16_products.h).
  // REQUIRES: samples >= 1; for training also 0 if the model has collectives, for ranks without
  // samples. size.length: one of sample().cuts, or 0.
  // update_samples: size of the largest update; 0: the batch is the whole update.
  [[nodiscard]] Result<TrainingGraph> RecordTraining(BatchSize size,
                                                     Precision precision = Precision::kF32,
                                                     std::int64_t update_samples = 0) const;
  // REQUIRES: contrastive().
  [[nodiscard]] Result<EncodingGraph> RecordEncoding(BatchSize size,
                                                     Precision precision = Precision::kF32) const;
  // kConfig if the model has collectives or a contrastive loss.
  [[nodiscard]] Result<EvaluationGraph> RecordEvaluation(
      BatchSize size, Precision precision = Precision::kF32) const;

  // Empty: the loss is a sum over samples.
  [[nodiscard]] std::optional<ContrastiveModel> contrastive() const;

  // Model FLOPs: floating-point operations of the matrix products of one sample of length `length`,
  // forward and backward, 2 m n k each; of a stage only its own. Recomputation does not count;
  // causal attention counts as full. Records a graph.
  [[nodiscard]] double FlopsPerSample(std::int64_t length = 0) const;
  // Additional operations with Recompute::kBlocks; 0 if the model has no blocks. Records a graph.
  [[nodiscard]] double RecomputedFlopsPerSample() const;
  // Whether training graphs have blocks that Recompute::kBlocks recomputes.
  [[nodiscard]] bool has_blocks() const { return has_blocks_; }

  // Sets the initial weights, which depend only on the seed; modules define them (nn/parameter.h).
  // Initialize() of a pipeline stage sets only the parameters that it uses or owns; InitializeAll()
  // sets all. REQUIRES: parameters.size() == layout().size(), and the padding is zero.
  void Initialize(std::uint64_t seed, std::span<float> parameters) const;
  void InitializeAll(std::uint64_t seed, std::span<float> parameters) const;

  // Whether training graphs contain collective functions (ops/collective/collective.h).
  [[nodiscard]] bool has_collectives() const { return has_collectives_; }
  // Number of sums over the update (Function::is_update_sum) in training graphs. If not 0, graphs
  // run segment by segment.
  [[nodiscard]] std::int64_t update_sums() const { return update_sums_; }
  // The layers with running statistics; `sums` refers to no graph.
  [[nodiscard]] std::span<const nn::RunningUpdate> running_statistics() const { return running_; }
  // The smallest number of values per channel in one sample (H W of an image) of layers that
  // normalise over the whole update, which needs at least 2; and of layers that normalise each
  // micro-batch separately, so that the model depends on the micro-batch size. 0: no such layer.
  [[nodiscard]] std::int64_t normalised_values() const { return normalised_values_; }
  [[nodiscard]] std::int64_t micro_values() const { return micro_values_; }

  [[nodiscard]] WeightNames weight_names() const { return network_->weight_names(); }

  // For users: "784-512-512-10".
  [[nodiscard]] std::string Describe() const { return network_->Describe(); }

 private:
  Model(std::shared_ptr<const Network> network, LossKind loss, SampleSpec sample,
        double label_smoothing)
      : network_(std::move(network)),
        loss_(loss),
        sample_(std::move(sample)),
        label_smoothing_(label_smoothing) {
    if (!network_->ignores_padding()) sample_.cuts.clear();
  }

  void InitializeOne(nn::ParameterIndex i, std::uint64_t seed, std::span<float> parameters) const;

  struct Forward {
    std::vector<nn::GraphInput> inputs;
    ValueId prediction;  // with the loss `output`, the loss of each sample, f32 [samples]
    // labels [rows of the prediction] or targets [samples, width]; none for other losses
    ValueId target;
    std::optional<ValueId> weights;  // [rows of the prediction]; with `output`, the counts
    std::vector<nn::RunningUpdate> running = {};
    std::vector<ValueId> block_ends = {};
  };
  struct Loss {
    ValueId sum;
    std::optional<ValueId> divisor;
  };
  enum class For : std::uint8_t { kTraining, kEvaluation };
  Result<Forward> RecordForward(Graph& graph, For purpose, BatchSize size, Precision precision,
                                std::int64_t update_samples = 0) const;
  Result<Loss> RecordLoss(Graph& graph, For purpose, const Forward& forward) const;
  Result<EvaluationGraph> RecordPrediction(BatchSize size, Precision precision) const;
  static Status MarkPrediction(const Forward& forward, EvaluationGraph* evaluation);
  Status RecordPredictions(const Forward& forward, EvaluationGraph* evaluation) const;
  Status AddParameters();
  Status CountCollectives();
  // Indices of the block ends, in their order, at which a pipeline can cut the model.
  [[nodiscard]] Result<std::vector<std::size_t>> PlacesToCut() const;
  [[nodiscard]] StageCuts MakeCuts(std::span<const ValueId> block_ends,
                                   std::optional<ValueId> seed) const;
  // With the constants of shorter texts. Clears sample().cuts if these have other functions.
  Result<StageUsers> FindUsers(const Graph& whole, std::span<const ValueId> block_ends);
  Status CutToStage(const std::vector<std::optional<ValueId>>& gradients,
                    TrainingGraph* training) const;
  Status CutToStage(std::span<const ValueId> block_ends, EvaluationGraph* evaluation) const;

  std::shared_ptr<const Network> network_;
  LossKind loss_;
  SampleSpec sample_;
  double label_smoothing_;
  FlatLayout layout_;
  bool has_collectives_ = false;
  bool has_blocks_ = false;
  bool output_has_counts_ = false;  // with the loss `output`
  std::int64_t update_sums_ = 0;
  std::vector<nn::RunningUpdate> running_;
  std::int64_t micro_values_ = 0;
  std::int64_t normalised_values_ = 0;
  std::int64_t predictions_ = 1;
  std::uint64_t dropout_seed_ = 0;
  std::optional<PipelineStage> stage_;
  std::vector<std::size_t> places_;           // PlacesToCut() of a pipeline stage
  std::optional<InferenceOutput> inference_;  // MakeForInference()
  Shape prediction_shape_;
};

}  // namespace gaccd
