// Model: the network of a job and its loss, checked against the data, ready to be recorded as
// graphs.
// Immutable after Make(), SetDropoutSeed() and ApplyRules(); any thread may use it.
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

// Forward, backward and accumulation of one micro-step; already simplified.
struct TrainingGraph {
  Graph graph;
  std::vector<nn::GraphInput> inputs;  // from the batch: tensors of the sample, by name
  // Input f32 [1]: what one prediction weighs. Of a contrastive loss: f32 [samples, 2 width], the
  // gradient of the representations.
  ValueId weight;
  // Output f64 [1]: the sum over the predictions, not weighted. Of a contrastive loss: none.
  ValueId loss_sum;
  // Output f64 [1]: how many predictions have a label, or the sum of their weights. None: all count
  // as 1. Of class labels there is always one.
  std::optional<ValueId> divisor;
  // What an update adds to running statistics.
  std::vector<nn::RunningUpdate> running = {};
  // Where blocks of the model end (nn::Recorder::EndBlock).
  std::vector<ValueId> block_ends = {};
  // Of a stage of a pipeline. Only the last one has a weight, a loss and a divisor.
  StageEnds ends = {};
};

// The forward half of the same, for a contrastive loss: with the same random numbers.
struct EncodingGraph {
  Graph graph;
  std::vector<nn::GraphInput> inputs;
  ValueId rows;  // output f32 [samples, 2 width]
};

// What a contrastive loss needs to know of its model (ops/loss/info_nce.h).
struct ContrastiveModel {
  std::int64_t width = 0;
  std::int64_t log_scale = 0;  // the element of the flat buffers with log t
  bool learns_scale = true;    // it is not frozen
  double max_scale = 0;        // t is kept at this or below; 0: no limit
};

// Forward only.
struct EvaluationGraph {
  Graph graph;
  std::vector<nn::GraphInput> inputs;
  std::optional<ValueId> loss_sum;  // this and the next as in training; none: a prediction alone
  std::optional<ValueId> divisor;
  // Outputs of what metrics are counted from. For class labels: i32 [predictions], see
  // ops/loss/label_ranks.h. For targets: f32 [samples, width].
  std::optional<ValueId> ranks;
  std::optional<ValueId> best;
  std::optional<ValueId> prediction;
  StageEnds ends = {};  // of a stage of a pipeline; only the last one has the others

  // All of them, in this order.
  [[nodiscard]] std::vector<ValueId> Outputs() const;
};

// What a model can be asked of samples without labels or targets.
enum class Answer : std::uint8_t {
  kPrediction,  // logits, or what is compared with targets
  kEmbeddings,  // Network::RecordEmbedding()
};

// The type of activations on a GPU.
[[nodiscard]] constexpr DType ActivationsOf(Precision precision) {
  if (precision == Precision::kBF16) return DType::kBF16;
  return precision == Precision::kFP16 ? DType::kFP16 : DType::kF32;
}

class Model {
 public:
  // kConfig when a layer refuses what the one before gives, or the loss does not fit the data; the
  // message names the layer and both shapes.
  static Result<Model> Make(const ModelSpec& spec, const SampleSpec& sample);
  // label_smoothing: of a softmax_cross_entropy, in training.
  static Result<Model> Make(std::shared_ptr<const Network> network, LossKind loss,
                            const SampleSpec& sample, double label_smoothing = 0);
  // A model that is only asked: RecordEvaluation() records the answer as
  // EvaluationGraph::prediction, and nothing else. kConfig where the architecture has no such
  // answer.
  static Result<Model> MakeForInference(const ModelSpec& spec, const SampleSpec& sample,
                                        Answer answer);
  // With samples as the model itself needs them, for what can be asked without the data: its shapes
  // and functions.
  static Result<Model> MakeWithoutData(const ModelSpec& spec);

  // Of the masks of dropout. To be called before anything is recorded.
  void SetDropoutSeed(std::uint64_t seed) { dropout_seed_ = seed; }

  // The job's rules for groups and frozen parameters (tensor/group_rules.h). To be called before
  // anything is recorded.
  Status ApplyRules(const OptimizerSpec& optimizer);

  // This model becomes a stage of a pipeline: it records the graphs of that stage. blocks: of each
  // stage, at least one, together as many as BlockFlops(). To be called last, before anything is
  // recorded. kConfig where the model cannot be cut so, or has what pipelines do not offer.
  Status SetStage(std::vector<std::int64_t> blocks, std::size_t stage,
                  bool divide_backward = false);
  // Empty: the model is whole.
  [[nodiscard]] const std::optional<PipelineStage>& stage() const { return stage_; }
  // Of each block that a pipeline may be cut into: floating-point operations of one sample's
  // forward and backward. Records graphs.
  [[nodiscard]] Result<std::vector<double>> BlockFlops() const;

  [[nodiscard]] const FlatLayout& layout() const { return layout_; }
  // What a batch for this model is made of; no cuts where the network does not ignore padding.
  [[nodiscard]] const SampleSpec& sample() const { return sample_; }
  // Of one sample, with or without a label: 1, or the tokens of its sequence.
  [[nodiscard]] std::int64_t predictions() const { return predictions_; }
  // Of one sample: [width], or [T, width] for the tokens of a sequence. REQUIRES:
  // MakeForInference().
  [[nodiscard]] const Shape& prediction_shape() const { return prediction_shape_; }
  // What the divisor of the loss counts: "samples", "tokens", or their "weights". weighted: false
  // where the weights of the samples are all 1.
  [[nodiscard]] std::string_view divisor_unit(bool weighted = true) const;

  // kBF16, kFP16: the features are cast once, everything from there to the logits or the prediction
  // is of this type, and so are the gradients of these; losses and parameter gradients are f32 (see
  // ops/product/linear.h). For GPUs: on CPUs only products are bf16 (ops/product/bf16_products.h).
  // REQUIRES: samples >= 1; for training also 0, where the model has collectives: what a rank
  // without samples runs. size.length: one of sample().cuts, or 0.
  // update_samples: of the largest update; 0: the batch is all of it.
  [[nodiscard]] Result<TrainingGraph> RecordTraining(BatchSize size,
                                                     Precision precision = Precision::kF32,
                                                     std::int64_t update_samples = 0) const;
  // REQUIRES: contrastive().
  [[nodiscard]] Result<EncodingGraph> RecordEncoding(BatchSize size,
                                                     Precision precision = Precision::kF32) const;
  // kConfig where the model has collectives, and for a contrastive loss.
  [[nodiscard]] Result<EvaluationGraph> RecordEvaluation(
      BatchSize size, Precision precision = Precision::kF32) const;

  // Nothing: the loss is a sum over samples.
  [[nodiscard]] std::optional<ContrastiveModel> contrastive() const;

  // Floating-point operations of the matrix products of one sample, cut to `length`, forward and
  // backward, 2 m n k each, as usual for model FLOPs: what is computed a second time does not
  // count, causal attention counts whole. Records a graph.
  [[nodiscard]] double FlopsPerSample(std::int64_t length = 0) const;
  // Those that Recompute::kBlocks adds to them; 0 where it has no block. Records a graph.
  [[nodiscard]] double RecomputedFlopsPerSample() const;
  // Whether graphs for training have blocks that Recompute::kBlocks computes again.
  [[nodiscard]] bool has_blocks() const { return has_blocks_; }

  // The initial weights, a function of the seed alone; the modules say which (nn/parameter.h).
  // REQUIRES: parameters.size() == layout().size(), and the padding is zero. Of a stage: those that
  // it uses, or with InitializeAll() all.
  void Initialize(std::uint64_t seed, std::span<float> parameters) const;
  void InitializeAll(std::uint64_t seed, std::span<float> parameters) const;

  // Whether graphs for training have functions of ops/collective/collective.h, which all ranks run
  // together.
  [[nodiscard]] bool has_collectives() const { return has_collectives_; }
  // Sums over the update (Function::is_update_sum) in graphs for training, which run segment by
  // segment then.
  [[nodiscard]] std::int64_t update_sums() const { return update_sums_; }
  // Of the layers with statistics that an update changes; `sums` belongs to no graph.
  [[nodiscard]] std::span<const nn::RunningUpdate> running_statistics() const { return running_; }
  // The fewest values of a channel in one sample, H W of an image: of layers that normalise the
  // whole update, which needs 2 of them; and of layers that normalise each micro-batch by itself:
  // the model then depends on what the micro-batches are. 0: there are none.
  [[nodiscard]] std::int64_t normalised_values() const { return normalised_values_; }
  [[nodiscard]] std::int64_t micro_values() const { return micro_values_; }

  [[nodiscard]] WeightNames weight_names() const { return network_->weight_names(); }

  // "784-512-512-10": for people.
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
    ValueId prediction;
    ValueId target;  // labels [rows of the prediction] or targets [samples, width]; none for a
                     // contrastive loss
    std::optional<ValueId> weights;  // [rows of the prediction]
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
  // Of block ends, in their order: those at which a pipeline can cut the model.
  [[nodiscard]] Result<std::vector<std::size_t>> PlacesToCut() const;
  [[nodiscard]] StageCuts CutsOf(std::span<const ValueId> block_ends,
                                 std::optional<ValueId> seed) const;
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
  std::int64_t update_sums_ = 0;
  std::vector<nn::RunningUpdate> running_;
  std::int64_t micro_values_ = 0;
  std::int64_t normalised_values_ = 0;
  std::int64_t predictions_ = 1;
  std::uint64_t dropout_seed_ = 0;
  std::optional<PipelineStage> stage_;
  std::vector<std::size_t> places_;  // PlacesToCut(), of a stage
  std::optional<Answer> inference_;  // MakeForInference()
  Shape prediction_shape_;
};

}  // namespace gaccd
