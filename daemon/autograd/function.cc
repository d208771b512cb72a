#include "daemon/autograd/function.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"

namespace gaccd {

bool GradientScope::HasOutputGradient(std::size_t i) const {
  return gradients_[Index(output(i))].has_value();
}

ValueId GradientScope::OutputGradient(std::size_t i) const { return *gradients_[Index(output(i))]; }

Status GradientScope::AddGradient(ValueId target, ValueId gradient) {
  if (graph_.value(target).kind == ValueKind::kParameter) {
    return graph_.ApplyToGradients(std::make_shared<Accumulate>(), {gradient}, {{target}}).status();
  }
  if (const ValueSpec& found = graph_.value(gradient).spec, &expected = graph_.value(target).spec;
      found != expected) {
    return {ErrorKind::kInternal,
            StrCat("gradient of '", graph_.value(target).name, "': expected ", Name(expected.dtype),
                   " ", ToString(expected.shape), ", found ", Name(found.dtype), " ",
                   ToString(found.shape))};
  }
  std::optional<ValueId>& sum = gradients_[Index(target)];
  if (sum.has_value()) {
    GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> added,
                           graph_.Apply(std::make_shared<Add>(), {*sum, gradient}));
    gradient = added[0];
  }
  sum = gradient;
  return Status::Ok();
}

Status GradientScope::SetInputGradients(std::span<const std::size_t> which,
                                        std::shared_ptr<const Function> function,
                                        std::vector<ValueId> inputs) {
  // parameters that the node itself adds to
  std::vector<std::optional<ValueId>> direct(which.size());
  bool wanted = false;
  for (std::size_t j = 0; j < which.size(); ++j) {
    if (!NeedsGradient(which[j])) continue;
    wanted = true;
    const std::optional<ValueId> target = input(which[j]);
    // Two outputs in the same memory: a kernel could not tell which is written first.
    const bool is_taken = std::ranges::find(direct, target) != direct.end();
    if (graph_.value(*target).kind == ValueKind::kParameter && function->can_accumulate(j) &&
        !is_taken) {
      direct[j] = target;
    }
  }
  if (!wanted) return Status::Ok();
  const std::string name(function->name());
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                         graph_.ApplyToGradients(std::move(function), std::move(inputs), direct));
  for (std::size_t j = 0; j < which.size(); ++j) {
    if (direct[j] || !NeedsGradient(which[j])) continue;
    GACCD_RETURN_IF_ERROR(AddGradient(input(which[j]), outputs[j]).WithContext(name));
  }
  return Status::Ok();
}

Result<bool> GradientScope::AddToInputGradient(std::size_t i,
                                               std::shared_ptr<const Function> function,
                                               std::vector<ValueId> inputs) {
  std::optional<ValueId>& sum = gradients_[Index(input(i))];
  if (!sum.has_value() || graph_.value(input(i)).kind == ValueKind::kParameter) return false;
  inputs.insert(inputs.begin(), *sum);
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                         graph_.Apply(std::move(function), std::move(inputs)));
  sum = outputs[0];
  return true;
}

Status Function::Gradient(GradientScope&) const {
  return {ErrorKind::kConfig, StrCat("'", name(), "' has no gradient")};
}

std::shared_ptr<const Function> Function::FoldWith(const Function&) const { return nullptr; }

double ProductFlops(const Graph& graph) {
  double sum = 0;
  std::vector<ValueSpec> inputs;
  for (const Node& node : graph.nodes()) {
    inputs.clear();
    for (const ValueId input : node.inputs) inputs.push_back(graph.value(input).spec);
    sum += node.function->ProductFlops(inputs);
  }
  return sum;
}

Status RecordGradients(Graph& graph, ValueId objective, ValueId seed,
                       std::vector<std::optional<ValueId>>* found) {
  if (!graph.value(objective).needs_gradient) {
    return {ErrorKind::kConfig, "the objective depends on no parameter"};
  }
  std::vector<std::optional<ValueId>> gradients(graph.values().size());
  gradients[Index(objective)] = seed;
  const std::vector<Node> forward(graph.nodes().begin(), graph.nodes().end());
  for (std::size_t i = forward.size(); i-- > 0;) {
    const Node& node = forward[i];
    bool wanted = false;
    for (const ValueId output : node.outputs) {
      wanted = wanted || (graph.value(output).needs_gradient && gradients[Index(output)]);
    }
    if (!wanted) continue;
    GradientScope scope(graph, node, gradients);
    GACCD_RETURN_IF_ERROR(node.function->Gradient(scope));
  }
  if (found != nullptr) *found = std::move(gradients);
  return Status::Ok();
}

}  // namespace gaccd
