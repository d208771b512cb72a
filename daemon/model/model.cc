#include "daemon/model/model.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/simplify.h"
#include "daemon/nn/recorder.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/softmax_cross_entropy.h"

namespace gaccd {
namespace {

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

Status CheckPredictionFits(const SampleSpec& sample, const Shape& prediction) {
  const std::int64_t wanted = sample.classes > 0 ? sample.classes : sample.target_width;
  if (prediction == Shape{wanted}) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("loss: ", wanted, sample.classes > 0 ? " classes" : " values per target",
                 " need a last layer with the output shape [", wanted, "], found ",
                 ToString(prediction))};
}

std::shared_ptr<const Function> LossFunction(LossKind kind) {
  switch (kind) {
    case LossKind::kSoftmaxCrossEntropy:
      return std::make_shared<SoftmaxCrossEntropy>();
    case LossKind::kMeanSquaredError:
      return std::make_shared<MeanSquaredError>();
  }
  return nullptr;
}

// A sample for which `network` can be recorded, with the target that its prediction needs.
Result<SampleSpec> ExampleSample(const Network& network, LossKind loss) {
  SampleSpec sample = network.ExampleSample();
  Graph graph;
  nn::Recorder recorder(graph, network.parameters(), sample, {});
  const ValueId prediction = network.Record(recorder);
  GACCD_RETURN_IF_ERROR(recorder.status());
  const std::int64_t width = Elements(SampleShape(graph.value(prediction).spec.shape));
  (loss == LossKind::kSoftmaxCrossEntropy ? sample.classes : sample.target_width) = width;
  return sample;
}

}  // namespace

Result<Model> Model::Make(const ModelSpec& spec, const SampleSpec& sample) {
  return Make(MakeNetwork(spec), spec.loss, sample);
}

Result<Model> Model::MakeWithoutData(const ModelSpec& spec) {
  std::shared_ptr<const Network> network = MakeNetwork(spec);
  GACCD_ASSIGN_OR_RETURN(const SampleSpec sample, ExampleSample(*network, spec.loss));
  return Make(std::move(network), spec.loss, sample);
}

Result<Model> Model::Make(std::shared_ptr<const Network> network, LossKind loss,
                          const SampleSpec& sample) {
  Model model(std::move(network), loss, sample);
  GACCD_RETURN_IF_ERROR(CheckLossFits(loss, sample));
  GACCD_RETURN_IF_ERROR(model.AddParameters());
  GACCD_RETURN_IF_ERROR(model.RecordTraining(1).status());
  return model;
}

Status Model::AddParameters() {
  for (const nn::ParameterSpec& parameter : network_->parameters().specs()) {
    GACCD_RETURN_IF_ERROR(layout_.Add(parameter.name, parameter.shape).status());
  }
  return Status::Ok();
}

Result<Model::Forward> Model::RecordForward(Graph& graph, std::int64_t samples,
                                            Precision precision) const {
  nn::Recorder recorder(graph, network_->parameters(), sample_,
                        {.samples = samples, .bf16 = precision == Precision::kBF16});
  const std::string_view target = sample_.classes > 0 ? "labels" : "targets";
  Forward forward{};
  forward.prediction = network_->Record(recorder);
  forward.target = recorder.Input(target);
  GACCD_RETURN_IF_ERROR(recorder.status());
  forward.features = recorder.BatchInput("features").value_or(nn::kNoValue);
  GACCD_RETURN_IF_ERROR(
      CheckPredictionFits(sample_, SampleShape(graph.value(forward.prediction).spec.shape)));
  forward.loss_sum =
      recorder.Apply("loss", LossFunction(loss_), {forward.prediction, forward.target});
  GACCD_RETURN_IF_ERROR(recorder.status());
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
  const std::span<const nn::ParameterSpec> specs = network_->parameters().specs();
  for (nn::ParameterIndex i = 0; i < specs.size(); ++i) {
    const FlatEntry& entry = layout_.entries()[i];
    nn::Initialize(specs[i].initializer, seed, i,
                   parameters.subspan(static_cast<std::size_t>(entry.offset),
                                      static_cast<std::size_t>(entry.elements)));
  }
}

}  // namespace gaccd
