#include "daemon/autograd/graph.h"

#include <algorithm>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"

namespace gaccd {

ValueId Graph::AddValue(Value value) {
  values_.push_back(std::move(value));
  return static_cast<ValueId>(values_.size() - 1);
}

ValueId Graph::AddInput(std::string name, ValueSpec spec) {
  return AddValue({.name = std::move(name), .spec = std::move(spec), .kind = ValueKind::kInput});
}

ValueId Graph::AddParameter(std::string name, Shape shape, std::size_t parameter) {
  return AddValue({.name = std::move(name),
                   .spec = {std::move(shape), DType::kF32},
                   .kind = ValueKind::kParameter,
                   .parameter = parameter,
                   .needs_gradient = true});
}

Result<std::vector<ValueSpec>> Graph::InferOutputs(const Function& function,
                                                   std::span<const ValueId> inputs) const {
  std::vector<ValueSpec> specs;
  for (const ValueId input : inputs) specs.push_back(value(input).spec);
  auto outputs = function.Infer(specs);
  if (!outputs.ok()) return std::move(outputs).status().WithContext(function.name());
  for (const ValueSpec& spec : *outputs) {
    GACCD_RETURN_IF_ERROR(CheckShape(spec.shape, spec.dtype).WithContext(function.name()));
  }
  return outputs;
}

Result<std::vector<ValueId>> Graph::Apply(std::shared_ptr<const Function> function,
                                          std::vector<ValueId> inputs) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> specs, InferOutputs(*function, inputs));
  const bool needs_gradient = std::any_of(
      inputs.begin(), inputs.end(), [&](ValueId input) { return value(input).needs_gradient; });
  std::vector<ValueId> outputs;
  outputs.reserve(specs.size());
  for (const ValueSpec& spec : specs) {
    outputs.push_back(AddValue(
        {.name = std::string(function->name()), .spec = spec, .needs_gradient = needs_gradient}));
  }
  nodes_.push_back({std::move(function), std::move(inputs), outputs});
  return outputs;
}

Status Graph::ApplyToGradient(std::shared_ptr<const Function> function, std::vector<ValueId> inputs,
                              ValueId parameter) {
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueSpec> specs, InferOutputs(*function, inputs));
  const Value target = value(parameter);
  if (!function->can_accumulate()) {
    return {ErrorKind::kInternal,
            StrCat(function->name(), ": gradient of ", target.name, ": cannot accumulate")};
  }
  if (specs.size() != 1 || specs[0] != target.spec) {
    return {ErrorKind::kInternal,
            StrCat(function->name(), ": gradient of ", target.name, ": expected one output ",
                   ToString(target.spec.shape), ", found ", specs.size(), ", first ",
                   specs.empty() ? "none" : ToString(specs[0].shape))};
  }
  const ValueId gradient = AddValue({.name = target.name + ".gradient",
                                     .spec = target.spec,
                                     .kind = ValueKind::kParameterGradient,
                                     .parameter = target.parameter});
  nodes_.push_back({std::move(function), std::move(inputs), {gradient}});
  return Status::Ok();
}

}  // namespace gaccd
