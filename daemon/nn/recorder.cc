#include "daemon/nn/recorder.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/image/channels_last.h"
#include "daemon/ops/layout/reshape.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/dropout.h"

namespace gaccd::nn {
namespace {

// The spec for a whole batch; empty if there is no input with this name.
std::optional<ValueSpec> FindInput(const SampleSpec& sample, std::string_view name,
                                   std::int64_t samples) {
  if (name == kSampleIds) return ValueSpec{{samples}, DType::kI64};
  if (name == kUpdate || name == kPosition) return ValueSpec{{1}, DType::kI64};
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
      name != "weights" && name != "mixed_weights") {
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
  const Shape found = shape(value);
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

ValueId Recorder::Dropout(std::string_view where, const DropoutOptions& options, ValueId x) {
  return DropBy(where, options, x, kSampleIds);
}

ValueId Recorder::SharedDropout(std::string_view where, const DropoutOptions& options, ValueId x) {
  return DropBy(where, options, x, kUpdate);  // as the id of the one sample
}

ValueId Recorder::DropBy(std::string_view where, DropoutOptions options, ValueId x,
                         std::string_view ids) {
  if (!options_.dropout_seed || options.probability == 0) return x;
  options.seed = *options_.dropout_seed;
  options.layer = dropouts_++;
  const ValueId drawn_by = Input(ids);
  return Apply(where, std::make_shared<gaccd::Dropout>(options), {x, drawn_by, Input(kUpdate)});
}

ValueId Recorder::Apply(std::string_view where, std::shared_ptr<const Function> function,
                        std::vector<ValueId> inputs) {
  if (!status_.ok()) return kNoValue;
  const bool channels_last =
      std::ranges::any_of(inputs, [this](ValueId input) { return channels_last_.contains(input); });
  auto outputs = graph_.Apply(std::move(function), std::move(inputs));
  Check(where, outputs.status());
  if (!outputs.ok()) return kNoValue;
  for (const ValueId output : *outputs) {
    graph_.Rename(output, std::string(where));
    if (channels_last && shape(output).size() == 4) channels_last_.insert(output);
  }
  return (*outputs)[0];
}

void Recorder::AddToBuffers(std::string_view where, std::shared_ptr<const Function> function,
                            std::vector<ValueId> inputs, std::span<const ParameterIndex> buffers) {
  std::vector<std::optional<ValueId>> targets;
  for (const ParameterIndex buffer : buffers) targets.emplace_back(Parameter(buffer));
  if (!status_.ok()) return;
  Check(where, graph_.ApplyToGradients(std::move(function), std::move(inputs), targets).status());
}

ValueId Recorder::Image(std::string_view where, ValueId x) {
  if (!status_.ok() || channels_last_.contains(x)) return x;
  const Shape found = shape(x);
  if (found.size() != 4) {
    Check(where, {ErrorKind::kConfig,
                  StrCat("expected images [channels, height, width], found ",
                         ToString(SampleShape(x)), ": put an unflatten layer before it")});
    return kNoValue;
  }
  const Shape last = {found[0], found[2], found[3], found[1]};
  const bool same_order = found[1] == 1 || found[2] * found[3] == 1;
  x = same_order ? Apply(where, std::make_shared<Reshape>(last), {x})
                 : Apply(where, std::make_shared<ChannelsLast>(), {x});
  if (x != kNoValue) channels_last_.insert(x);
  return x;
}

ValueId Recorder::Plain(std::string_view where, ValueId x) {
  if (!status_.ok() || !channels_last_.contains(x)) return x;
  const Shape found = shape(x);
  const Shape plain = {found[0], found[3], found[1], found[2]};
  const bool same_order = found[3] == 1 || found[1] * found[2] == 1;
  x = same_order ? Apply(where, std::make_shared<Reshape>(plain), {x})
                 : Apply(where, std::make_shared<ChannelsFirst>(), {x});
  channels_last_.erase(x);
  return x;
}

Shape Recorder::SampleShape(ValueId x) const {
  const Shape found = shape(x);
  if (channels_last_.contains(x)) return {found[3], found[1], found[2]};
  return {found.empty() ? found.end() : found.begin() + 1, found.end()};
}

void Recorder::Check(std::string_view where, Status status) {
  if (status_.ok()) status_ = std::move(status).WithContext(where);
}

Shape Recorder::shape(ValueId value) const {
  return value == kNoValue ? Shape{} : graph_.value(value).spec.shape;
}

}  // namespace gaccd::nn
