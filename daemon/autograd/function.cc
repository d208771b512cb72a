#include "daemon/autograd/function.h"

#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"

namespace gaccd {

bool GradientScope::HasOutputGradient(std::size_t i) const {
  return gradients_[Index(output(i))].has_value();
}

ValueId GradientScope::OutputGradient(std::size_t i) const { return *gradients_[Index(output(i))]; }

Status GradientScope::SetInputGradient(std::size_t i, std::shared_ptr<const Function> function,
                                       std::vector<ValueId> inputs) {
  const ValueId target = input(i);
  const bool is_parameter = graph_.value(target).kind == ValueKind::kParameter;
  if (is_parameter && function->can_accumulate()) {
    return graph_.ApplyToGradient(std::move(function), std::move(inputs), target);
  }
  GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> outputs,
                         graph_.Apply(std::move(function), std::move(inputs)));
  ValueId gradient = outputs[0];
  if (is_parameter) {
    return graph_.ApplyToGradient(std::make_shared<Accumulate>(), {gradient}, target);
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

Status Function::Gradient(GradientScope&) const {
  return {ErrorKind::kConfig, StrCat("'", name(), "' has no gradient")};
}

std::shared_ptr<const Function> Function::FoldWith(const Function&) const { return nullptr; }

Status RecordGradients(Graph& graph, ValueId objective, ValueId seed) {
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
  return Status::Ok();
}

}  // namespace gaccd
