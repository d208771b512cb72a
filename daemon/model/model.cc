#include "daemon/model/model.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/simplify.h"
#include "daemon/nn/recorder.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/softmax_cross_entropy.h"
#include "daemon/tensor/group_rules.h"

namespace gaccd {
namespace {

// The tensor of the sample that the loss compares with.
std::string_view TargetOf(LossKind loss) {
  switch (loss) {
    case LossKind::kSoftmaxCrossEntropy:
      return "labels";
    case LossKind::kMeanSquaredError:
      return "targets";
  }
  return "";
}

Status CheckLossFits(LossKind loss, const SampleSpec& sample) {
  if (sample.Find(TargetOf(loss)) != nullptr) return Status::Ok();
  const bool labels = loss == LossKind::kSoftmaxCrossEntropy;
  return {ErrorKind::kConfig, StrCat(labels ? "softmax_cross_entropy needs class labels"
                                            : "mean_squared_error needs target vectors",
                                     ", found samples of ", Describe(sample))};
}

// In the words of the job: the shape of one sample.
Shape SampleShape(const Shape& batch) { return {batch.begin() + 1, batch.end()}; }

Status CheckPredictionFits(LossKind loss, const SampleSpec& sample, const Shape& prediction) {
  const bool labels = loss == LossKind::kSoftmaxCrossEntropy;
  const std::int64_t wanted = labels ? sample.classes : sample.Find(TargetOf(loss))->elements();
  if (prediction == Shape{wanted}) return Status::Ok();
  return {ErrorKind::kConfig, StrCat("loss: ", wanted, labels ? " classes" : " values per target",
                                     " need a last layer with the output shape [", wanted,
                                     "], found ", ToString(prediction))};
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
  const bool labels = loss == LossKind::kSoftmaxCrossEntropy;
  sample.tensors.push_back(labels ? TensorSpec{"labels", DType::kI32, {}}
                                  : TensorSpec{"targets", DType::kF32, {width}});
  if (labels) sample.classes = width;
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
    const OptimizerGroup group = parameter.decay ? OptimizerGroup{} : kNoDecay;
    GACCD_RETURN_IF_ERROR(
        layout_.Add(parameter.name, parameter.shape, group, parameter.frozen).status());
  }
  return Status::Ok();
}

Status Model::ApplyRules(const OptimizerSpec& optimizer) {
  return ApplyGroupRules(optimizer, &layout_);
}

Result<Model::Forward> Model::RecordForward(Graph& graph, std::int64_t samples,
                                            Precision precision) const {
  nn::Recorder recorder(
      graph, network_->parameters(), sample_,
      {.samples = samples, .bf16 = precision == Precision::kBF16, .layout = &layout_});
  Forward forward{};
  forward.prediction = network_->Record(recorder);
  forward.target = recorder.Input(TargetOf(loss_));
  GACCD_RETURN_IF_ERROR(recorder.status());
  GACCD_RETURN_IF_ERROR(
      CheckPredictionFits(loss_, sample_, SampleShape(graph.value(forward.prediction).spec.shape)));
  forward.loss_sum =
      recorder.Apply("loss", LossFunction(loss_), {forward.prediction, forward.target});
  GACCD_RETURN_IF_ERROR(recorder.status());
  forward.inputs = recorder.inputs();
  return forward;
}

Result<TrainingGraph> Model::RecordTraining(std::int64_t samples, Precision precision) const {
  TrainingGraph training{};
  GACCD_ASSIGN_OR_RETURN(Forward forward, RecordForward(training.graph, samples, precision));
  training.inputs = std::move(forward.inputs);
  training.loss_sum = forward.loss_sum;
  training.weight = training.graph.AddInput("weight", {{1}, DType::kF32});
  training.graph.MarkOutput(forward.loss_sum);
  GACCD_RETURN_IF_ERROR(RecordGradients(training.graph, forward.loss_sum, training.weight));
  Simplify(training.graph);
  return training;
}

Result<EvaluationGraph> Model::RecordEvaluation(std::int64_t samples, Precision precision) const {
  EvaluationGraph evaluation{};
  GACCD_ASSIGN_OR_RETURN(Forward forward, RecordForward(evaluation.graph, samples, precision));
  evaluation.inputs = std::move(forward.inputs);
  evaluation.loss_sum = forward.loss_sum;
  evaluation.graph.MarkOutput(forward.loss_sum);
  if (loss_ == LossKind::kSoftmaxCrossEntropy) {
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
