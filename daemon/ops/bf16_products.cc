#include "daemon/ops/bf16_products.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/autograd/function.h"
#include "daemon/ops/attention.h"
#include "daemon/ops/cast.h"
#include "daemon/ops/linear.h"

namespace gaccd {
namespace {

// The same product of bf16, and how many of its first inputs are rounded: weights are rounded when
// they are packed.
struct Bf16Product {
  std::shared_ptr<const Function> function;
  std::size_t rounded_inputs = 0;
};

AttentionOptions Rounding(AttentionOptions options) {
  options.round_to_bf16 = true;
  return options;
}

// Without a function: `node` is no product.
Bf16Product ProductOf(const Node& node) {
  const Function* function = node.function.get();
  if (const auto* linear = dynamic_cast<const Linear*>(function)) {
    return {std::make_shared<Linear>(linear->relu(), linear->order(), LinearSums::kF32), 1};
  }
  if (const auto* gradient = dynamic_cast<const LinearInputGradient*>(function)) {
    return {std::make_shared<LinearInputGradient>(gradient->order(), LinearSums::kF32), 1};
  }
  if (dynamic_cast<const LinearWeightGradient*>(function) != nullptr) return {node.function, 2};
  if (const auto* attention = dynamic_cast<const Attention*>(function)) {
    return {std::make_shared<Attention>(Rounding(attention->options())), 0};
  }
  if (const auto* gradient = dynamic_cast<const AttentionGradient*>(function)) {
    return {std::make_shared<AttentionGradient>(Rounding(gradient->options())), 0};
  }
  return {};
}

}  // namespace

Status RoundProductsToBf16(Graph& graph) {
  const std::vector<Node> recorded(graph.nodes().begin(), graph.nodes().end());
  std::map<ValueId, ValueId> rounded;
  std::vector<Node> nodes;
  for (Node node : recorded) {
    Bf16Product product = ProductOf(node);
    if (product.function != nullptr) node.function = std::move(product.function);
    for (std::size_t i = 0; i < product.rounded_inputs; ++i) {
      const auto [found, added] = rounded.try_emplace(node.inputs[i]);
      if (added) {
        GACCD_ASSIGN_OR_RETURN(const auto outputs,
                               graph.Apply(std::make_shared<Cast>(DType::kBF16), {node.inputs[i]}));
        found->second = outputs[0];
        nodes.push_back(graph.nodes().back());
      }
      node.inputs[i] = found->second;
    }
    nodes.push_back(std::move(node));
  }
  graph.ReplaceNodes(std::move(nodes));
  return Status::Ok();
}

}  // namespace gaccd
