#include "daemon/autograd/graph.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"

namespace gaccd {
namespace {

bool IsInteger(DType dtype) {
  return dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU8;
}

}  // namespace

ValueId Graph::AddValue(Value value) {
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::AddInput(std::string name, ValueSpec spec) {
  return AddValue({.name = std::move(name), .spec = std::move(spec), .kind = ValueKind::kInput});
}

ValueId Graph::AddParameter(std::string name, Shape shape, std::size_t parameter, bool frozen) {
  return AddValue({.name = std::move(name),
                   .spec = {std::move(shape), DType::kF32},
                   .kind = ValueKind::kParameter,
                   .parameter = parameter,
                   .needs_gradient = !frozen});
}

ValueId Graph::AddActivationLike(ValueId value) {
  Value copy = values_[Index(value)];
  copy.kind = ValueKind::kActivation;
  return AddValue(std::move(copy));
}

OutputSpecs Graph::InferOutputs(const Function& function, std::span<const ValueId> inputs) const {
  std::vector<ValueSpec> specs;
  for (const ValueId input : inputs) specs.push_back(value(input).spec);
  auto outputs = function.Infer(specs);
  if (!outputs.ok()) return outputs.status().WithContext(function.name());
  for (const ValueSpec& spec : *outputs) {
    GACCD_RETURN_IF_ERROR(CheckShape(spec.shape, spec.dtype).WithContext(function.name()));
  }
  return outputs;
}

Result<std::vector<ValueId>> Graph::Apply(std::shared_ptr<const Function> function,
                                          std::vector<ValueId> inputs) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> specs, InferOutputs(*function, inputs));
  const bool needs_gradient =
      !function->stops_gradient() &&
      std::ranges::any_of(inputs, [&](ValueId input) { return value(input).needs_gradient; });
  std::vector<ValueId> outputs;
  outputs.reserve(specs.size());
  for (const ValueSpec& spec : specs) {
    outputs.push_back(AddValue({.name = std::string(function->name()),
                                .spec = spec,
                                .needs_gradient = needs_gradient && !IsInteger(spec.dtype)}));
  }
  nodes_.push_back({std::move(function), std::move(inputs), outputs});
  return outputs;
}

Status Graph::CheckTarget(const Function& function, std::size_t output, const ValueSpec& found,
                          const Value& parameter) const {
  const std::string what = StrCat(function.name(), ": gradient of ", parameter.name);
  if (!function.can_accumulate(output)) {
    return {ErrorKind::kInternal, StrCat(what, ": output ", output, " cannot accumulate")};
  }
  if (found != parameter.spec) {
    return {ErrorKind::kInternal, StrCat(what, ": expected ", Name(parameter.spec.dtype), " ",
                                         ToString(parameter.spec.shape), ", found ",
                                         Name(found.dtype), " ", ToString(found.shape))};
  }
  return Status::Ok();
}

Result<std::vector<ValueId>> Graph::ApplyToGradients(
    std::shared_ptr<const Function> function, std::vector<ValueId> inputs,
    const std::vector<std::optional<ValueId>>& targets) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> specs, InferOutputs(*function, inputs));
  if (specs.size() != targets.size()) {
    return Status(ErrorKind::kInternal,
                  StrCat(function->name(), " is to give the gradients of ", targets.size(),
                         " inputs, but has ", specs.size(), " outputs"));
  }
  for (std::size_t j = 0; j < specs.size(); ++j) {
    if (!targets[j]) continue;
    GACCD_RETURN_IF_ERROR(CheckTarget(*function, j, specs[j], value(*targets[j])));
  }
  std::vector<ValueId> outputs;
  for (std::size_t j = 0; j < specs.size(); ++j) {
    if (!targets[j]) {
      outputs.push_back(AddValue({.name = std::string(function->name()), .spec = specs[j]}));
      continue;
    }
    const Value target = value(*targets[j]);
    outputs.push_back(AddValue({.name = target.name + ".gradient",
                                .spec = target.spec,
                                .kind = ValueKind::kParameterGradient,
                                .parameter = target.parameter}));
  }
  nodes_.push_back({std::move(function), std::move(inputs), outputs});
  return outputs;
}

}  // namespace gaccd
