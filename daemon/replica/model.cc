#include "daemon/replica/model.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/autograd/passes.h"
#include "daemon/replica/model_loss.h"
#include "daemon/tensor/group_rules.h"

namespace gaccd {
namespace {

// A token beyond the model's table would make everything NaN.
Status CheckVocabulary(const Network& network, const SampleSpec& sample) {
  const SampleSpec model = network.ExampleSample();
  const auto check = [&](std::int64_t known, std::int64_t found, const std::string& of) -> Status {
    if (known == 0 || found <= known) return {};
    if (known == kLargestExactId + 1) {
      return {ErrorKind::kConfig,
              StrCat("the model computes with the integers", of, " in f32, which has all up to ",
                     kLargestExactId, ": expected a vocabulary of at most ", known, ", found ",
                     found, ": give arrays of smaller numbers, such as hours and days of a time")};
    }
    return {ErrorKind::kConfig,
            StrCat("the model has a vocabulary of ", known, of, ", the data one of ", found,
                   ": raise ", network.fields().vocabulary)};
  };
  for (const auto& [name, found] : sample.other_vocabularies) {
    const auto known = model.other_vocabularies.find(name);
    if (known == model.other_vocabularies.end()) continue;
    GACCD_RETURN_IF_ERROR(check(known->second, found, StrCat(" for '", name, "'")));
  }
  return check(model.vocabulary, sample.vocabulary, "");
}

// A sample for which `network` can be recorded, with a target of the shape of its prediction.
Result<SampleSpec> ExampleSample(const Network& network, LossKind loss) {
  SampleSpec sample = network.ExampleSample();
  if (TargetTensor(loss).empty()) return sample;
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

// Otherwise the loss would silently not depend on them.
Status CheckTargetsAreRead(const Network& network, const SampleSpec& sample) {
  const SampleSpec read = network.ExampleSample();
  for (const std::string_view name : {std::string_view("targets"), kWeights}) {
    if (sample.Find(name) == nullptr || read.Find(name) != nullptr) continue;
    return {ErrorKind::kConfig,
            StrCat("loss: output is computed by the graph, and the data has ", name,
                   ", which the graph does not read: expected an input '", name, "' of forward()")};
  }
  return Status::Ok();
}

double LabelSmoothing(const LossSpec& loss) {
  const auto* cross_entropy = std::get_if<SoftmaxCrossEntropySpec>(&loss);
  return cross_entropy != nullptr ? cross_entropy->label_smoothing : 0;
}

}  // namespace

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
  if (loss == LossKind::kOutput)
    GACCD_RETURN_IF_ERROR(CheckTargetsAreRead(*model.network_, sample));
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
                                      InferenceOutput answer) {
  GACCD_ASSIGN_OR_RETURN(std::shared_ptr<const Network> network, MakeNetwork(spec));
  Model model(std::move(network), GetLossKind(spec.loss), sample, 0);
  model.inference_ = answer;
  if (model.loss_ == LossKind::kContrastive && answer == InferenceOutput::kPrediction) {
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
  output_has_counts_ = loss_ == LossKind::kOutput && one.divisor.has_value();
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
  GACCD_RETURN_IF_ERROR(ApplyGroupRules(optimizer, &layout_, network_->weight_names().tied));
  // Parameters below the lowest one that is not frozen have no gradient, so there is no sum over
  // it.
  return update_sums_ > 0 ? CountCollectives() : Status::Ok();
}

std::string_view Model::divisor_unit(bool weighted) const {
  if (loss_ != LossKind::kSoftmaxCrossEntropy) return output_has_counts_ ? "weights" : "samples";
  if (weighted && sample_.Find(kWeights) != nullptr) return "weights";
  return sample_.Find(kLabels)->shape.empty() ? "samples" : "tokens";
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

std::optional<ContrastiveModel> Model::contrastive() const {
  if (loss_ != LossKind::kContrastive || inference_) return std::nullopt;
  const PairSpec pair = *network_->pair();
  const FlatEntry* scale = layout_.Find(pair.log_scale);
  return ContrastiveModel{.width = pair.width,
                          .log_scale = scale->offset,
                          .learns_scale = !scale->frozen,
                          .max_scale = pair.max_scale};
}

void Model::Initialize(std::uint64_t seed, std::span<float> parameters) const {
  for (nn::ParameterIndex i = 0; i < layout_.entries().size(); ++i) {
    // Also the own part: saves and exports contain the owner's values of a frozen or unused
    // parameter, whichever stage reads it.
    if (!stage_ || stage_->uses[i] || stage_->owns(layout_.entries()[i])) {
      InitializeOne(i, seed, parameters);
    }
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
