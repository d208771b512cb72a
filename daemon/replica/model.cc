#include "daemon/replica/model.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/recompute.h"
#include "daemon/autograd/simplify.h"
#include "daemon/nn/recorder.h"
#include "daemon/ops/layout/concat.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/tensor/group_rules.h"

namespace gaccd {
namespace {

constexpr std::string_view kLabels = "labels";
// Weights: one per label, if the samples have them.
constexpr std::string_view kWeights = "weights";
// Two labels per sample and their weights: replace label and weight in training.
constexpr std::string_view kMixedLabels = "mixed_labels";
constexpr std::string_view kMixedWeights = "mixed_weights";

// The tensor of the sample that the loss compares the prediction with.
std::string_view TargetTensor(LossKind loss) {
  switch (loss) {
    case LossKind::kSoftmaxCrossEntropy:
      return kLabels;
    case LossKind::kMeanSquaredError:
      return "targets";
    case LossKind::kContrastive:
      return "";
  }
  return "";
}

Status CheckLossFits(LossKind loss, const SampleSpec& sample) {
  if (loss == LossKind::kContrastive) return Status::Ok();
  const bool labels = loss == LossKind::kSoftmaxCrossEntropy;
  if (!labels && sample.Find(kWeights) != nullptr) {
    return {ErrorKind::kConfig, "mean_squared_error does not support weights"};
  }
  if (sample.Find(TargetTensor(loss)) != nullptr) return Status::Ok();
  return {ErrorKind::kConfig, StrCat(labels ? "softmax_cross_entropy needs class labels"
                                            : "mean_squared_error needs target vectors",
                                     ", found samples of ", Describe(sample))};
}

// A token beyond the model's table would make everything NaN.
Status CheckVocabulary(const Network& network, const SampleSpec& sample) {
  const std::int64_t known = network.ExampleSample().vocabulary;
  if (known == 0 || sample.vocabulary <= known) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("the model has a vocabulary of ", known, ", the data one of ",
                                     sample.vocabulary, ": raise ", network.fields().vocabulary)};
}

// The shape of one sample, as users specify it.
Shape SampleShape(const Shape& batch) { return {batch.begin() + 1, batch.end()}; }

// rows: rows of the prediction per sample. outputs: the job field that sets the number of outputs.
Status CheckPredictionFits(LossKind loss, const SampleSpec& sample, std::int64_t rows,
                           const Shape& row, std::string_view outputs) {
  const TensorSpec& target = *sample.Find(TargetTensor(loss));
  const bool labels = loss == LossKind::kSoftmaxCrossEntropy;
  const std::int64_t targets = labels ? target.elements() : 1;
  if (rows != targets) {
    return {ErrorKind::kConfig,
            StrCat("loss: a sample has ", targets, labels ? " labels" : " target",
                   ", but the model predicts ", rows, " rows for it")};
  }
  const std::int64_t wanted = labels ? sample.classes : target.elements();
  // A vocabulary may be padded to a round number.
  if (row == Shape{wanted} || (rows > 1 && row.size() == 1 && row[0] > wanted)) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("loss: the data has ", wanted,
                 !labels                                           ? " values per target"
                 : rows > 1 && sample.classes == sample.vocabulary ? " tokens in its vocabulary"
                                                                   : " classes",
                 ", and the model gives ", ToString(row), " for a ", rows > 1 ? "token" : "sample",
                 ": expected [", wanted, "]; set ", outputs, " to ", wanted,
                 labels ? ", if the data is right" : "")};
}

// A contrastive loss needs one representation per sample, not per token.
Status CheckOneRowEach(const Shape& rows, std::int64_t samples) {
  if (rows[0] == samples) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("loss: contrastive needs one output row per sample, but the "
                                     "encoders produce ",
                                     rows[0] / samples)};
}

Result<std::vector<ValueId>> Apply(Graph& graph, std::string_view what,
                                   std::shared_ptr<const Function> function,
                                   std::vector<ValueId> inputs) {
  auto outputs = graph.Apply(std::move(function), std::move(inputs));
  if (!outputs.ok()) return outputs.status().WithContext(what);
  return outputs;
}

// Duplicates every row, [N, C] -> [2 N, C], in f32: for two labels per row.
ValueId TwiceEveryRow(nn::Recorder& recorder, ValueId rows) {
  constexpr std::string_view kWhere = "loss";
  if (recorder.activations() != DType::kF32) {
    rows = recorder.Apply(kWhere, std::make_shared<Cast>(DType::kF32), {rows});
  }
  const Shape shape = recorder.shape(rows);
  const ValueId pairs = recorder.Apply(kWhere, std::make_shared<Concat>(), {rows, rows});
  return recorder.Apply(kWhere, std::make_shared<Reshape>(Shape{2 * shape[0], shape[1]}), {pairs});
}

// A sample for which `network` can be recorded, with a target of the shape of its prediction.
Result<SampleSpec> ExampleSample(const Network& network, LossKind loss) {
  SampleSpec sample = network.ExampleSample();
  if (loss == LossKind::kContrastive) return sample;
  Graph graph;
  nn::Recorder recorder(graph, network.parameters(), sample, {});
  const ValueId prediction = network.Record(recorder);
  GACCD_RETURN_IF_ERROR(recorder.status());
  const Shape& shape = graph.value(prediction).spec.shape;
  const std::int64_t width = Elements(SampleShape(shape));
  const bool labels = loss == LossKind::kSoftmaxCrossEntropy;
  const Shape label = shape[0] > 1 ? Shape{shape[0]} : Shape{};
  sample.tensors.push_back(labels ? TensorSpec{"labels", DType::kI32, label}
                                  : TensorSpec{"targets", DType::kF32, {width}});
  if (labels) sample.classes = width;
  return sample;
}

double LabelSmoothing(const LossSpec& loss) {
  const auto* cross_entropy = std::get_if<SoftmaxCrossEntropySpec>(&loss);
  return cross_entropy != nullptr ? cross_entropy->label_smoothing : 0;
}

}  // namespace

std::vector<ValueId> EvaluationGraph::Outputs() const {
  std::vector<ValueId> outputs;
  for (const auto& output : {loss_sum, divisor, ranks, best, prediction}) {
    if (output) outputs.push_back(*output);
  }
  return outputs;
}

Result<Model> Model::Make(const ModelSpec& spec, const SampleSpec& sample) {
  GACCD_ASSIGN_OR_RETURN(std::shared_ptr<const Network> network, MakeNetwork(spec));
  return Make(std::move(network), GetLossKind(spec.loss), sample, LabelSmoothing(spec.loss));
}

Result<Model> Model::MakeWithoutData(const ModelSpec& spec) {
  GACCD_ASSIGN_OR_RETURN(std::shared_ptr<const Network> network, MakeNetwork(spec));
  const LossKind loss = GetLossKind(spec.loss);
  GACCD_ASSIGN_OR_RETURN(const SampleSpec sample, ExampleSample(*network, loss));
  return Make(std::move(network), loss, sample, LabelSmoothing(spec.loss));
}

Result<Model> Model::Make(std::shared_ptr<const Network> network, LossKind loss,
                          const SampleSpec& sample, double label_smoothing) {
  Model model(std::move(network), loss, sample, label_smoothing);
  if (loss == LossKind::kContrastive && !model.network_->pair()) {
    return Status(ErrorKind::kConfig, "loss: contrastive needs a dual_encoder");
  }
  GACCD_RETURN_IF_ERROR(CheckLossFits(loss, sample));
  if (loss == LossKind::kSoftmaxCrossEntropy) {
    model.predictions_ = sample.Find(kLabels)->elements();
  }
  GACCD_RETURN_IF_ERROR(CheckVocabulary(*model.network_, sample));
  GACCD_RETURN_IF_ERROR(model.AddParameters());
  GACCD_RETURN_IF_ERROR(model.CountCollectives());
  if (loss == LossKind::kContrastive && model.update_sums_ > 0) {
    return Status(
        ErrorKind::kConfig,
        "loss: contrastive is not supported with statistics of the whole update: expected "
        "batch_norm { stats: FROZEN } or MICRO, or another norm");
  }
  return model;
}

Result<Model> Model::MakeForInference(const ModelSpec& spec, const SampleSpec& sample,
                                      Answer answer) {
  GACCD_ASSIGN_OR_RETURN(std::shared_ptr<const Network> network, MakeNetwork(spec));
  Model model(std::move(network), GetLossKind(spec.loss), sample, 0);
  model.inference_ = answer;
  if (model.loss_ == LossKind::kContrastive && answer == Answer::kPrediction) {
    return Status(ErrorKind::kConfig, "a contrastive loss has no logits; it has embeddings");
  }
  GACCD_RETURN_IF_ERROR(CheckVocabulary(*model.network_, sample));
  GACCD_RETURN_IF_ERROR(model.AddParameters());
  GACCD_ASSIGN_OR_RETURN(const EvaluationGraph one, model.RecordPrediction({1}, Precision::kF32));
  const Shape& shape = one.graph.value(*one.prediction).spec.shape;
  model.prediction_shape_ = shape[0] == 1 ? SampleShape(shape) : shape;
  if (shape[0] > 1) model.sample_.cuts.clear();  // predictions for all tokens have one shape
  return model;
}

Status Model::AddParameters() {
  for (const nn::ParameterSpec& parameter : network_->parameters().specs()) {
    const OptimizerGroup group = parameter.shape.size() > 1 ? OptimizerGroup{} : kNoDecay;
    GACCD_RETURN_IF_ERROR(
        layout_.Add(parameter.name, parameter.shape, group, parameter.frozen).status());
    if (parameter.buffer) layout_.SetBuffer(layout_.entries().size() - 1);
  }
  return Status::Ok();
}

Status Model::CountCollectives() {
  GACCD_ASSIGN_OR_RETURN(const TrainingGraph one, RecordTraining({1}));
  has_collectives_ = HasCollectives(one.graph);
  has_blocks_ = !FindBlocks(one.graph, one.block_ends, one.weight).empty();
  update_sums_ = static_cast<std::int64_t>(CountUpdateSums(one.graph));
  running_ = one.running;
  micro_values_ = 0;
  normalised_values_ = 0;
  for (const nn::RunningUpdate& running : one.running) {
    if (running.run_size > 0) continue;
    std::int64_t& least = running.sums == nn::kNoValue ? micro_values_ : normalised_values_;
    least = least == 0 ? running.values : std::min(least, running.values);
  }
  return Status::Ok();
}

Status Model::ApplyRules(const OptimizerSpec& optimizer) {
  GACCD_RETURN_IF_ERROR(ApplyGroupRules(optimizer, &layout_));
  // Parameters below the lowest one that is not frozen have no gradient, so there is no sum over
  // it.
  return update_sums_ > 0 ? CountCollectives() : Status::Ok();
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
  forward.prediction = inference_ == Answer::kEmbeddings ? network_->RecordEmbedding(recorder)
                                                         : network_->Record(recorder);
  forward.running = recorder.running_updates();
  forward.block_ends = recorder.block_ends();
  if (inference_) {
    GACCD_RETURN_IF_ERROR(recorder.status());
    forward.inputs = recorder.inputs();
    return forward;
  }
  if (loss_ == LossKind::kContrastive) {
    GACCD_RETURN_IF_ERROR(recorder.status());
    GACCD_RETURN_IF_ERROR(CheckOneRowEach(graph.value(forward.prediction).spec.shape, samples));
    forward.inputs = recorder.inputs();
    return forward;
  }
  GACCD_RETURN_IF_ERROR(recorder.status());
  Shape shape = graph.value(forward.prediction).spec.shape;
  const std::int64_t rows = samples > 0 ? shape[0] / samples : predictions_;
  GACCD_RETURN_IF_ERROR(
      CheckPredictionFits(loss_, sample, rows, SampleShape(shape), network_->fields().outputs));
  const bool mixed = purpose == For::kTraining && recorder.HasTensor(kMixedLabels);
  if (mixed) {
    forward.prediction = TwiceEveryRow(recorder, forward.prediction);
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

std::string_view Model::divisor_unit(bool weighted) const {
  if (loss_ != LossKind::kSoftmaxCrossEntropy) return "samples";
  if (weighted && sample_.Find(kWeights) != nullptr) return "weights";
  return sample_.Find(kLabels)->shape.empty() ? "samples" : "tokens";
}

Result<Model::Loss> Model::RecordLoss(Graph& graph, For purpose, const Forward& forward) const {
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

double Model::FlopsPerSample(std::int64_t length) const {
  const auto one = RecordTraining({1, length});
  return one.ok() ? ProductFlops(one->graph) : 0;  // Make() has recorded it successfully
}

double Model::RecomputedFlopsPerSample() const {
  auto one = RecordTraining({1});
  if (!one.ok()) return 0;  // Make() has recorded it successfully
  const double once = ProductFlops(one->graph);
  const Status blocks = RecomputeBlocks(one->block_ends, one->weight, 1, &one->graph);
  return blocks.ok() ? ProductFlops(one->graph) - once : 0;
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

std::optional<ContrastiveModel> Model::contrastive() const {
  if (loss_ != LossKind::kContrastive || inference_) return std::nullopt;
  const PairSpec pair = *network_->pair();
  const FlatEntry* scale = layout_.Find(pair.log_scale);
  return ContrastiveModel{.width = pair.width,
                          .log_scale = scale->offset,
                          .learns_scale = !scale->frozen,
                          .max_scale = pair.max_scale};
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
  DropUnused(graph);  // no folding: a NaN must reach the loss (relu.h)
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

void Model::Initialize(std::uint64_t seed, std::span<float> parameters) const {
  for (nn::ParameterIndex i = 0; i < layout_.entries().size(); ++i) {
    if (!stage_ || stage_->uses[i]) InitializeOne(i, seed, parameters);
  }
}

void Model::InitializeAll(std::uint64_t seed, std::span<float> parameters) const {
  for (nn::ParameterIndex i = 0; i < layout_.entries().size(); ++i) {
    InitializeOne(i, seed, parameters);
  }
}

void Model::InitializeOne(nn::ParameterIndex i, std::uint64_t seed,
                          std::span<float> parameters) const {
  const nn::ParameterSpec& spec = network_->parameters().specs()[i];
  const FlatEntry& entry = layout_.entries()[i];
  const auto place = parameters.subspan(static_cast<std::size_t>(entry.offset),
                                        static_cast<std::size_t>(entry.elements));
  if (spec.values != nullptr) {
    std::ranges::copy(*spec.values, place.begin());
  } else {
    nn::Initialize(spec.initializer, seed, i, place);
  }
}

}  // namespace gaccd
