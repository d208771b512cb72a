// Model: recording of its graphs.
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/passes.h"
#include "daemon/nn/recorder.h"
#include "daemon/ops/layout/concat.h"
#include "daemon/ops/layout/rearrange.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/replica/model.h"
#include "daemon/replica/model_loss.h"

namespace gaccd {
namespace {

Result<std::vector<ValueId>> Apply(Graph& graph, std::string_view what,
                                   std::shared_ptr<const Function> function,
                                   std::vector<ValueId> inputs) {
  auto outputs = graph.Apply(std::move(function), std::move(inputs));
  if (!outputs.ok()) return outputs.status().WithContext(what);
  return outputs;
}

// Duplicates every row, [N, C] -> [2 N, C], in f32: for two labels per row.
ValueId DuplicateRows(nn::Recorder& recorder, ValueId rows) {
  constexpr std::string_view kWhere = "loss";
  if (recorder.activations() != DType::kF32) {
    rows = recorder.Apply(kWhere, std::make_shared<Cast>(DType::kF32), {rows});
  }
  const Shape shape = recorder.shape(rows);
  const ValueId pairs = recorder.Apply(kWhere, std::make_shared<Concat>(), {rows, rows});
  return recorder.Apply(kWhere, std::make_shared<Reshape>(Shape{2 * shape[0], shape[1]}), {pairs});
}

// A column of the output of a graph that computes the loss of each sample, [N, 1 or 2] -> [N], in
// f32.
ValueId SelectColumn(nn::Recorder& recorder, ValueId output, std::int64_t column) {
  constexpr std::string_view kWhere = "loss";
  const Shape shape = recorder.shape(output);
  if (recorder.dtype(output) != DType::kF32) {
    output = recorder.Apply(kWhere, std::make_shared<Cast>(DType::kF32), {output});
  }
  if (shape[1] > 1) {
    const Rearrangement one = {
        .from = shape,
        .to = {{.size = shape[0], .source = 0}, {.size = 1, .source = 1, .start = column}}};
    output = recorder.Apply(kWhere, std::make_shared<Rearrange>(one), {output});
  }
  return recorder.Apply(kWhere, std::make_shared<Reshape>(Shape{shape[0]}), {output});
}

}  // namespace

std::vector<ValueId> EvaluationGraph::Outputs() const {
  std::vector<ValueId> outputs;
  for (const auto& output : {loss_sum, divisor, ranks, best, prediction}) {
    if (output) outputs.push_back(*output);
  }
  return outputs;
}

Result<Model::Forward> Model::RecordForward(Graph& graph, For purpose, BatchSize size,
                                            Precision precision,
                                            std::int64_t update_samples) const {
  const std::int64_t samples = size.samples;
  const SampleSpec sample = CutTo(sample_, size.length);
  nn::Recorder recorder(
      graph, network_->parameters(), sample,
      {.samples = samples,
       .update_samples = update_samples,
       .training = purpose == For::kTraining,
       .dropout_seed = purpose == For::kTraining ? std::optional(dropout_seed_) : std::nullopt,
       .activations = ActivationDType(precision),
       .layout = &layout_});
  Forward forward{};
  forward.prediction = inference_ == InferenceOutput::kEmbeddings
                           ? network_->RecordEmbedding(recorder)
                           : network_->Record(recorder);
  forward.running = recorder.running_updates();
  forward.block_ends = recorder.block_ends();
  if (inference_) {
    GACCD_RETURN_IF_ERROR(recorder.status());
    forward.inputs = recorder.inputs();
    return forward;
  }
  GACCD_RETURN_IF_ERROR(recorder.status());
  Shape shape = graph.value(forward.prediction).spec.shape;
  if (loss_ == LossKind::kContrastive) {
    GACCD_RETURN_IF_ERROR(CheckOneRowEach(shape, samples));
    forward.inputs = recorder.inputs();
    return forward;
  }
  if (loss_ == LossKind::kOutput) {
    const ValueId output = forward.prediction;
    GACCD_RETURN_IF_ERROR(CheckLossOutput(shape, recorder.dtype(output), samples));
    forward.prediction = SelectColumn(recorder, output, 0);
    if (shape[1] == 2) forward.weights = SelectColumn(recorder, output, 1);
    GACCD_RETURN_IF_ERROR(recorder.status());
    forward.inputs = recorder.inputs();
    return forward;
  }
  const std::int64_t rows = samples > 0 ? shape[0] / samples : predictions_;
  GACCD_RETURN_IF_ERROR(
      CheckPredictionFits(loss_, sample, rows, SampleShape(shape), network_->fields().outputs));
  const bool mixed = purpose == For::kTraining && recorder.HasTensor(kMixedLabels);
  if (mixed) {
    forward.prediction = DuplicateRows(recorder, forward.prediction);
    GACCD_RETURN_IF_ERROR(recorder.status());
    shape[0] *= 2;
  }
  // Labels and weights of sequences become a list of rows, like the prediction.
  const auto rows_of = [&](std::string_view name) {
    const ValueId input = recorder.Input(name);
    if (recorder.shape(input) == Shape{shape[0]}) return input;
    return recorder.Apply(name, std::make_shared<Reshape>(Shape{shape[0]}), {input});
  };
  const bool labels = loss_ == LossKind::kSoftmaxCrossEntropy;
  forward.target =
      labels ? rows_of(mixed ? kMixedLabels : kLabels) : recorder.Input(TargetTensor(loss_));
  const std::string_view weights = mixed ? kMixedWeights : kWeights;
  if (recorder.HasTensor(weights)) forward.weights = rows_of(weights);
  GACCD_RETURN_IF_ERROR(recorder.status());
  forward.inputs = recorder.inputs();
  return forward;
}

Result<Model::Loss> Model::RecordLoss(Graph& graph, For purpose, const Forward& forward) const {
  if (loss_ == LossKind::kOutput) {
    const auto add = [&graph](ValueId values) -> Result<ValueId> {
      GACCD_ASSIGN_OR_RETURN(
          const auto sums,
          Apply(graph, "loss", std::make_shared<ReduceSum>(Shape{1}, DType::kF64), {values}));
      graph.MarkOutput(sums[0]);
      return sums[0];
    };
    Loss loss{};
    GACCD_ASSIGN_OR_RETURN(loss.sum, add(forward.prediction));
    if (forward.weights) {
      GACCD_ASSIGN_OR_RETURN(loss.divisor, add(*forward.weights));
    }
    return loss;
  }
  std::vector<ValueId> inputs = {forward.prediction, forward.target};
  if (loss_ == LossKind::kMeanSquaredError) {
    GACCD_ASSIGN_OR_RETURN(
        const auto outputs,
        Apply(graph, "loss", std::make_shared<MeanSquaredError>(), std::move(inputs)));
    graph.MarkOutput(outputs[0]);
    return Loss{.sum = outputs[0]};
  }
  const double smoothing = purpose == For::kTraining ? label_smoothing_ : 0;
  if (forward.weights) inputs.push_back(*forward.weights);
  GACCD_ASSIGN_OR_RETURN(const auto outputs,
                         Apply(graph, "loss",
                               std::make_shared<TokenCrossEntropy>(TokenCrossEntropyOptions{
                                   .ignored_label = sample_.ignored_label,
                                   .label_smoothing = static_cast<float>(smoothing)}),
                               std::move(inputs)));
  graph.MarkOutput(outputs[0]);
  graph.MarkOutput(outputs[1]);
  return Loss{.sum = outputs[0], .divisor = outputs[1]};
}

Result<TrainingGraph> Model::RecordTraining(BatchSize size, Precision precision,
                                            std::int64_t update_samples) const {
  TrainingGraph training{};
  Graph& graph = training.graph;
  GACCD_ASSIGN_OR_RETURN(Forward forward,
                         RecordForward(graph, For::kTraining, size, precision, update_samples));
  training.running = std::move(forward.running);
  training.block_ends = std::move(forward.block_ends);
  if (loss_ == LossKind::kContrastive) {
    training.inputs = std::move(forward.inputs);
    training.weight = graph.AddInput("gradient", graph.value(forward.prediction).spec);
    training.loss_sum = nn::kNoValue;
    GACCD_RETURN_IF_ERROR(RecordGradients(graph, forward.prediction, training.weight));
    Simplify(graph);
    return training;
  }
  training.weight = graph.AddInput("weight", {{1}, DType::kF32});
  GACCD_ASSIGN_OR_RETURN(const Loss loss, RecordLoss(graph, For::kTraining, forward));
  training.inputs = std::move(forward.inputs);
  training.loss_sum = loss.sum;
  training.divisor = loss.divisor;
  std::vector<std::optional<ValueId>> gradients;
  GACCD_RETURN_IF_ERROR(RecordGradients(graph, loss.sum, training.weight, &gradients));
  if (stage_) GACCD_RETURN_IF_ERROR(CutToStage(gradients, &training));
  Simplify(graph);
  if (size.samples == 0) ReplaceEmptyNodes(graph);
  return training;
}

Result<EncodingGraph> Model::RecordEncoding(BatchSize size, Precision precision) const {
  EncodingGraph encoding{};
  GACCD_ASSIGN_OR_RETURN(Forward forward,
                         RecordForward(encoding.graph, For::kTraining, size, precision));
  encoding.inputs = std::move(forward.inputs);
  encoding.rows = forward.prediction;
  encoding.graph.MarkOutput(encoding.rows);
  Simplify(encoding.graph);
  return encoding;
}

Result<EvaluationGraph> Model::RecordEvaluation(BatchSize size, Precision precision) const {
  if (inference_) return RecordPrediction(size, precision);
  if (has_collectives_) {
    return Status(ErrorKind::kConfig,
                  "a model with collective operations cannot be evaluated while it is trained: "
                  "ranks evaluate different numbers of batches");
  }
  if (loss_ == LossKind::kContrastive) {
    return Status(ErrorKind::kConfig, "a contrastive loss has no evaluation");
  }
  EvaluationGraph evaluation{};
  Graph& graph = evaluation.graph;
  GACCD_ASSIGN_OR_RETURN(Forward forward, RecordForward(graph, For::kEvaluation, size, precision));
  GACCD_ASSIGN_OR_RETURN(const Loss loss, RecordLoss(graph, For::kEvaluation, forward));
  evaluation.inputs = std::move(forward.inputs);
  evaluation.loss_sum = loss.sum;
  evaluation.divisor = loss.divisor;
  GACCD_RETURN_IF_ERROR(RecordPredictions(forward, &evaluation));
  if (stage_) GACCD_RETURN_IF_ERROR(CutToStage(forward.block_ends, &evaluation));
  DropUnused(graph);  // no folding: a NaN must reach the loss (activations.h)
  return evaluation;
}

Result<EvaluationGraph> Model::RecordPrediction(BatchSize size, Precision precision) const {
  EvaluationGraph evaluation{};
  GACCD_ASSIGN_OR_RETURN(Forward forward,
                         RecordForward(evaluation.graph, For::kEvaluation, size, precision));
  evaluation.inputs = std::move(forward.inputs);
  GACCD_RETURN_IF_ERROR(MarkPrediction(forward, &evaluation));
  DropUnused(evaluation.graph);
  return evaluation;
}

Status Model::RecordPredictions(const Forward& forward, EvaluationGraph* evaluation) const {
  Graph& graph = evaluation->graph;
  if (loss_ == LossKind::kSoftmaxCrossEntropy) {
    GACCD_ASSIGN_OR_RETURN(const auto outputs, Apply(graph, "ranks", std::make_shared<LabelRanks>(),
                                                     {forward.prediction, forward.target}));
    evaluation->ranks = outputs[0];
    evaluation->best = outputs[1];
    for (const ValueId output : outputs) graph.MarkOutput(output);
    return Status::Ok();
  }
  if (loss_ == LossKind::kOutput) return Status::Ok();
  return MarkPrediction(forward, evaluation);
}

Status Model::MarkPrediction(const Forward& forward, EvaluationGraph* evaluation) {
  Graph& graph = evaluation->graph;
  evaluation->prediction = forward.prediction;
  if (graph.value(forward.prediction).spec.dtype != DType::kF32) {
    GACCD_ASSIGN_OR_RETURN(
        const auto outputs,
        Apply(graph, "prediction", std::make_shared<Cast>(DType::kF32), {forward.prediction}));
    evaluation->prediction = outputs[0];
  }
  graph.MarkOutput(*evaluation->prediction);
  return Status::Ok();
}

}  // namespace gaccd
