#include "daemon/nn/recorder.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/cast.h"
#include "daemon/ops/dropout.h"

namespace gaccd::nn {
namespace {

// Of a whole batch; nothing when there is no input of this name.
std::optional<ValueSpec> FindInput(const SampleSpec& sample, std::string_view name,
                                   std::int64_t samples) {
  if (name == kSampleIds) return ValueSpec{{samples}, DType::kI64};
  if (name == kUpdate) return ValueSpec{{1}, DType::kI64};
  const TensorSpec* tensor = sample.Find(name);
  if (tensor == nullptr) return std::nullopt;
  ValueSpec spec{tensor->shape, tensor->dtype};
  spec.shape.insert(spec.shape.begin(), samples);
  return spec;
}

}  // namespace

Recorder::Recorder(Graph& graph, const ParameterList& parameters, const SampleSpec& sample,
                   const RecorderOptions& options)
    : graph_(graph), parameters_(parameters), sample_(sample), options_(options) {}

ValueId Recorder::Input(std::string_view name) {
  if (!status_.ok()) return kNoValue;
  if (const auto found = seen_.find(name); found != seen_.end()) return found->second;
  const std::optional<ValueSpec> spec = FindInput(sample_, name, options_.samples);
  if (!spec) {
    Check("model", {ErrorKind::kConfig,
                    StrCat("needs the tensor '", name,
                           "', which the samples of this job do not have: ", Describe(sample_))});
    return kNoValue;
  }
  Check(name, CheckShape(spec->shape, spec->dtype));
  if (!status_.ok()) return kNoValue;
  ValueId value = graph_.AddInput(std::string(name), *spec);
  inputs_.push_back({std::string(name), value});
  if (activations() != spec->dtype && spec->dtype == DType::kF32 && name != "targets" &&
      name != "weights") {
    value = Apply(name, std::make_shared<Cast>(activations()), {value});
  }
  seen_.emplace(name, value);
  return value;
}

bool Recorder::IsFrozen(ParameterIndex index) const {
  return options_.layout != nullptr ? options_.layout->entries()[index].frozen
                                    : parameters_.specs()[index].frozen;
}

bool Recorder::HasTensor(std::string_view name) const { return sample_.Find(name) != nullptr; }

std::int64_t Recorder::SequenceLength(ValueId value) {
  const Shape& found = shape(value);
  if (found.size() == 2) return found[1];
  Check("model", {ErrorKind::kConfig,
                  StrCat("expected sequences [samples, length], found ", ToString(found))});
  return 0;
}

ValueId Recorder::Parameter(ParameterIndex index) {
  if (!status_.ok()) return kNoValue;
  const auto [found, added] = parameter_values_.try_emplace(index, kNoValue);
  if (added) {
    const ParameterSpec& spec = parameters_.specs()[index];
    found->second = graph_.AddParameter(spec.name, spec.shape, index, IsFrozen(index));
  }
  return found->second;
}

ValueId Recorder::Dropout(std::string_view where, double probability, ValueId x) {
  if (!options_.dropout_seed || probability == 0) return x;
  const DropoutOptions options{.probability = static_cast<float>(probability),
                               .seed = *options_.dropout_seed,
                               .layer = dropouts_++};
  return Apply(where, std::make_shared<gaccd::Dropout>(options),
               {x, Input(kSampleIds), Input(kUpdate)});
}

ValueId Recorder::Apply(std::string_view where, std::shared_ptr<const Function> function,
                        std::vector<ValueId> inputs) {
  if (!status_.ok()) return kNoValue;
  auto outputs = graph_.Apply(std::move(function), std::move(inputs));
  Check(where, outputs.status());
  if (!outputs.ok()) return kNoValue;
  for (const ValueId output : *outputs) graph_.Rename(output, std::string(where));
  return (*outputs)[0];
}

void Recorder::Check(std::string_view where, Status status) {
  if (status_.ok()) status_ = std::move(status).WithContext(where);
}

const Shape& Recorder::shape(ValueId value) const {
  static const Shape empty;
  return value == kNoValue ? empty : graph_.value(value).spec.shape;
}

}  // namespace gaccd::nn
