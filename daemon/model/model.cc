#include "daemon/model/model.h"

#include <cmath>
#include <utility>

#include "collectives/base/overloaded.h"
#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/simplify.h"
#include "daemon/ops/cast.h"
#include "daemon/ops/flatten.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/relu.h"
#include "daemon/ops/softmax_cross_entropy.h"
#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

std::string WeightName(const LayerSpec& layer) { return layer.name + ".weight"; }
std::string BiasName(const LayerSpec& layer) { return layer.name + ".bias"; }

Status CheckLossFits(LossKind loss, const SampleSpec& sample) {
  if (loss == LossKind::kSoftmaxCrossEntropy && sample.classes == 0) {
    return {ErrorKind::kConfig,
            StrCat("softmax_cross_entropy needs class labels, found target vectors of width ",
                   sample.target_width)};
  }
  if (loss == LossKind::kMeanSquaredError && sample.classes > 0) {
    return {ErrorKind::kConfig, StrCat("mean_squared_error needs target vectors, found labels of ",
                                       sample.classes, " classes")};
  }
  return Status::Ok();
}

// In the words of the job: the shape of one sample.
Shape SampleShape(const Shape& batch) { return {batch.begin() + 1, batch.end()}; }

Status CheckLinearInput(const LinearSpec& linear, const Shape& input) {
  if (input == Shape{linear.in}) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("linear.in is ", linear.in, ", but its input has the shape ", ToString(input),
                 input.size() == 1 ? "" : ": put a flatten layer before it")};
}

// [-limit, limit) from the top 24 bits: every value is exact in f32.
float UniformWeight(std::uint64_t bits, double limit) {
  const double unit = static_cast<double>(bits >> 40) * 0x1p-24;
  return static_cast<float>((2 * unit - 1) * limit);
}

}  // namespace

Result<Model> Model::Make(const ModelSpec& spec, const SampleSpec& sample) {
  Model model(spec, sample);
  GACCD_RETURN_IF_ERROR(CheckLossFits(spec.loss, sample));
  GACCD_RETURN_IF_ERROR(model.AddParameters());
  GACCD_RETURN_IF_ERROR(model.RecordTraining(1).status());
  return model;
}

Status Model::AddParameters() {
  for (const LayerSpec& layer : spec_.layers) {
    const auto* linear = std::get_if<LinearSpec>(&layer.kind);
    if (linear == nullptr) continue;
    GACCD_RETURN_IF_ERROR(layout_.Add(WeightName(layer), {linear->out, linear->in}).status());
    if (!linear->bias) continue;
    GACCD_RETURN_IF_ERROR(layout_.Add(BiasName(layer), {linear->out}).status());
  }
  return Status::Ok();
}

ValueId Model::Parameter(Graph& graph, const std::string& name) const {
  const FlatEntry* entry = layout_.Find(name);
  const auto index = static_cast<std::size_t>(entry - layout_.entries().data());
  return graph.AddParameter(name, entry->shape, index);
}

Result<ValueId> Model::RecordLayer(Graph& graph, const LayerSpec& layer, ValueId input) const {
  std::vector<ValueId> inputs = {input};
  std::shared_ptr<const Function> function;
  const std::string name = StrCat("layer '", layer.name, "'");
  if (const auto* linear = std::get_if<LinearSpec>(&layer.kind)) {
    const Shape sample = SampleShape(graph.value(input).spec.shape);
    GACCD_RETURN_IF_ERROR(CheckLinearInput(*linear, sample).WithContext(name));
  }
  std::visit(Overloaded{[&](const FlattenSpec&) { function = std::make_shared<Flatten>(); },
                        [&](const LinearSpec& linear) {
                          function = std::make_shared<Linear>();
                          inputs.push_back(Parameter(graph, WeightName(layer)));
                          if (linear.bias) inputs.push_back(Parameter(graph, BiasName(layer)));
                        },
                        [&](const ReluSpec&) { function = std::make_shared<Relu>(); }},
             layer.kind);
  auto outputs = graph.Apply(std::move(function), std::move(inputs));
  if (!outputs.ok()) return std::move(outputs).status().WithContext(name);
  return (*outputs)[0];
}

Result<Model::Forward> Model::RecordForward(Graph& graph, std::int64_t samples,
                                            Precision precision) const {
  Forward forward{};
  Shape features = sample_.feature_shape;
  features.insert(features.begin(), samples);
  GACCD_RETURN_IF_ERROR(CheckShape(features, DType::kF32).WithContext("features"));
  forward.features = graph.AddInput("features", {features, DType::kF32});
  forward.target = sample_.classes > 0
                       ? graph.AddInput("labels", {{samples}, DType::kI32})
                       : graph.AddInput("targets", {{samples, sample_.target_width}, DType::kF32});
  ValueId value = forward.features;
  if (precision == Precision::kBF16) {
    GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> cast,
                           graph.Apply(std::make_shared<Cast>(DType::kBF16), {value}));
    value = cast[0];
  }
  for (const LayerSpec& layer : spec_.layers) {
    GACCD_ASSIGN_OR_RETURN(value, RecordLayer(graph, layer, value));
  }
  forward.prediction = value;
  const Shape prediction = SampleShape(graph.value(value).spec.shape);
  const std::int64_t wanted = sample_.classes > 0 ? sample_.classes : sample_.target_width;
  if (prediction != Shape{wanted}) {
    return Status(ErrorKind::kConfig,
                  StrCat("loss: ", wanted, sample_.classes > 0 ? " classes" : " values per target",
                         " need a last layer with the output shape [", wanted, "], found ",
                         ToString(prediction)));
  }
  std::shared_ptr<const Function> loss;
  switch (spec_.loss) {
    case LossKind::kSoftmaxCrossEntropy:
      loss = std::make_shared<SoftmaxCrossEntropy>();
      break;
    case LossKind::kMeanSquaredError:
      loss = std::make_shared<MeanSquaredError>();
      break;
  }
  auto outputs = graph.Apply(std::move(loss), {value, forward.target});
  if (!outputs.ok()) return std::move(outputs).status().WithContext("loss");
  forward.loss_sum = (*outputs)[0];
  return forward;
}

Result<TrainingGraph> Model::RecordTraining(std::int64_t samples, Precision precision) const {
  TrainingGraph training{};
  GACCD_ASSIGN_OR_RETURN(const Forward forward, RecordForward(training.graph, samples, precision));
  training.features = forward.features;
  training.target = forward.target;
  training.loss_sum = forward.loss_sum;
  training.weight = training.graph.AddInput("weight", {{1}, DType::kF32});
  training.graph.MarkOutput(forward.loss_sum);
  GACCD_RETURN_IF_ERROR(RecordGradients(training.graph, forward.loss_sum, training.weight));
  Simplify(training.graph);
  return training;
}

Result<EvaluationGraph> Model::RecordEvaluation(std::int64_t samples, Precision precision) const {
  EvaluationGraph evaluation{};
  GACCD_ASSIGN_OR_RETURN(const Forward forward,
                         RecordForward(evaluation.graph, samples, precision));
  evaluation.features = forward.features;
  evaluation.target = forward.target;
  evaluation.loss_sum = forward.loss_sum;
  evaluation.graph.MarkOutput(forward.loss_sum);
  if (sample_.classes > 0) {
    GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> correct,
                           evaluation.graph.Apply(std::make_shared<CorrectCount>(),
                                                  {forward.prediction, forward.target}));
    evaluation.correct = correct[0];
    evaluation.graph.MarkOutput(correct[0]);
  }
  DropUnused(evaluation.graph);  // nothing is folded: a NaN must reach the loss (relu.h)
  return evaluation;
}

void Model::Initialize(std::uint64_t seed, std::span<float> parameters) const {
  for (const LayerSpec& layer : spec_.layers) {
    const auto* linear = std::get_if<LinearSpec>(&layer.kind);
    if (linear == nullptr) continue;
    const double limit = 1.0 / std::sqrt(static_cast<double>(linear->in));
    for (const std::string& name : {WeightName(layer), BiasName(layer)}) {
      const FlatEntry* entry = layout_.Find(name);
      if (entry == nullptr) continue;
      const auto index = static_cast<std::uint64_t>(entry - layout_.entries().data());
      const std::uint64_t key = StreamKey(seed, index);
      for (std::int64_t i = 0; i < entry->elements; ++i) {
        parameters[static_cast<std::size_t>(entry->offset + i)] =
            UniformWeight(StreamValue(key, static_cast<std::uint64_t>(i)), limit);
      }
    }
  }
}

std::string Model::Describe() const {
  std::string text;
  for (const LayerSpec& layer : spec_.layers) {
    const auto* linear = std::get_if<LinearSpec>(&layer.kind);
    if (linear == nullptr) continue;
    if (text.empty()) text = StrCat(linear->in);
    text += StrCat("-", linear->out);
  }
  return text;
}

}  // namespace gaccd
