#include "daemon/nn/recorder.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/cast.h"

namespace gaccd::nn {
namespace {

// Of one sample; nothing when the data has no tensor of this name.
std::optional<ValueSpec> FindTensor(const SampleSpec& sample, std::string_view name) {
  if (name == "features") return ValueSpec{sample.feature_shape, DType::kF32};
  if (name == "labels" && sample.classes > 0) return ValueSpec{{}, DType::kI32};
  if (name == "targets" && sample.classes == 0)
    return ValueSpec{{sample.target_width}, DType::kF32};
  return std::nullopt;
}

}  // namespace

Recorder::Recorder(Graph& graph, const ParameterList& parameters, const SampleSpec& sample,
                   const RecorderOptions& options)
    : graph_(graph), parameters_(parameters), sample_(sample), options_(options) {}

ValueId Recorder::Input(std::string_view name) {
  if (!status_.ok()) return kNoValue;
  if (const auto found = inputs_.find(name); found != inputs_.end()) return found->second.seen;
  std::optional<ValueSpec> spec = FindTensor(sample_, name);
  if (!spec) {
    Check("model", {ErrorKind::kConfig, StrCat("needs the tensor '", name,
                                               "', which the samples of this job do not have")});
    return kNoValue;
  }
  spec->shape.insert(spec->shape.begin(), options_.samples);
  Check(name, CheckShape(spec->shape, spec->dtype));
  if (!status_.ok()) return kNoValue;
  BatchTensor tensor;
  tensor.bound = tensor.seen = graph_.AddInput(std::string(name), *spec);
  if (options_.bf16 && spec->dtype == DType::kF32 && name != "targets") {
    tensor.seen = Apply(name, std::make_shared<Cast>(DType::kBF16), {tensor.bound});
  }
  inputs_.emplace(name, tensor);
  return tensor.seen;
}

ValueId Recorder::Parameter(ParameterIndex index) {
  if (!status_.ok()) return kNoValue;
  const auto [found, added] = parameter_values_.try_emplace(index, kNoValue);
  if (added) {
    const ParameterSpec& spec = parameters_.specs()[index];
    found->second = graph_.AddParameter(spec.name, spec.shape, index);
  }
  return found->second;
}

ValueId Recorder::Apply(std::string_view where, std::shared_ptr<const Function> function,
                        std::vector<ValueId> inputs) {
  if (!status_.ok()) return kNoValue;
  auto outputs = graph_.Apply(std::move(function), std::move(inputs));
  Check(where, outputs.status());
  return outputs.ok() ? (*outputs)[0] : kNoValue;
}

void Recorder::Check(std::string_view where, Status status) {
  if (status_.ok()) status_ = std::move(status).WithContext(where);
}

const Shape& Recorder::shape(ValueId value) const {
  static const Shape kEmpty;
  return value == kNoValue ? kEmpty : graph_.value(value).spec.shape;
}

std::optional<ValueId> Recorder::BatchInput(std::string_view name) const {
  const auto found = inputs_.find(name);
  if (found == inputs_.end()) return std::nullopt;
  return found->second.bound;
}

}  // namespace gaccd::nn
