#include "daemon/ops/product/bf16_products.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "daemon/autograd/function.h"
#include "daemon/ops/attention/attention.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/norm/batch_norm.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/cast.h"
#include "daemon/ops/pointwise/gated.h"
#include "daemon/ops/product/linear.h"

namespace gaccd {
namespace {

// The same function for bf16, and the number of leading inputs to round: weights are rounded when
// they are packed.
struct Bf16Product {
  std::shared_ptr<const Function> function;
  std::size_t rounded_inputs = 0;
};

AttentionOptions Rounding(AttentionOptions options) {
  options.round_to_bf16 = true;
  return options;
}

// `function` is null if `node` reads no bf16.
Bf16Product ToBf16Product(const Node& node) {
  const Function* function = node.function.get();
  if (const auto* linear = dynamic_cast<const Linear*>(function)) {
    return {std::make_shared<Linear>(linear->relu(), linear->order(), LinearSums::kF32), 1};
  }
  if (const auto* gradient = dynamic_cast<const LinearInputGradient*>(function)) {
    return {std::make_shared<LinearInputGradient>(gradient->order(), LinearSums::kF32), 1};
  }
  if (dynamic_cast<const LinearWeightGradient*>(function) != nullptr) return {node.function, 2};
  if (dynamic_cast<const BiasGradient*>(function) != nullptr) return {node.function, 1};
  if (const auto* conv = dynamic_cast<const Conv2d*>(function)) {
    return {std::make_shared<Conv2d>(conv->options(), LinearSums::kF32), 1};
  }
  if (const auto* gradient = dynamic_cast<const Conv2dInputGradient*>(function)) {
    return {std::make_shared<Conv2dInputGradient>(gradient->options(), gradient->image(),
                                                  LinearSums::kF32),
            1};
  }
  if (dynamic_cast<const Conv2dWeightGradient*>(function) != nullptr) return {node.function, 2};
  if (const auto* attention = dynamic_cast<const Attention*>(function)) {
    return {std::make_shared<Attention>(Rounding(attention->options())), 0};
  }
  if (const auto* gradient = dynamic_cast<const AttentionGradient*>(function)) {
    return {std::make_shared<AttentionGradient>(Rounding(gradient->options())), 0};
  }
  return {};
}

// The same function with its first output in bf16; null: not supported.
std::shared_ptr<const Function> WithBf16Output(const Node& node) {
  const Function* function = node.function.get();
  if (const auto* linear = dynamic_cast<const Linear*>(function); linear && linear->relu()) {
    return std::make_shared<Linear>(/*relu=*/true, linear->order(), LinearSums::kAsInput);
  }
  if (dynamic_cast<const ReluGradient*>(function) != nullptr) {
    return std::make_shared<ReluGradient>(/*to_bf16=*/true);
  }
  if (const auto* norm = dynamic_cast<const BatchNorm*>(function)) {
    const NormEnd end = norm->end();
    return std::make_shared<BatchNorm>(norm->With({end.adds, end.relu, /*to_bf16=*/true}));
  }
  if (const auto* norm = dynamic_cast<const BatchNormInputGradient*>(function)) {
    return std::make_shared<BatchNormInputGradient>(norm->eps(), norm->runs(), norm->relu(),
                                                    /*to_bf16=*/true);
  }
  if (const auto* norm = dynamic_cast<const LayerNorm*>(function)) {
    return std::make_shared<LayerNorm>(norm->eps(), /*to_bf16=*/true);
  }
  if (const auto* norm = dynamic_cast<const RmsNorm*>(function)) {
    return std::make_shared<RmsNorm>(norm->eps(), /*to_bf16=*/true);
  }
  if (const auto* gated = dynamic_cast<const Gated*>(function)) {
    return std::make_shared<Gated>(gated->kind(), /*to_bf16=*/true);
  }
  if (const auto* activation = dynamic_cast<const Activation*>(function)) {
    return std::make_shared<Activation>(activation->kind(), /*to_bf16=*/true);
  }
  if (const auto* gradient = dynamic_cast<const ActivationGradient*>(function)) {
    return std::make_shared<ActivationGradient>(gradient->kind(), /*to_bf16=*/true);
  }
  const auto* attention = dynamic_cast<const AttentionGradient*>(function);
  if (attention == nullptr || node.outputs.size() != 1) return nullptr;
  return std::make_shared<AttentionGradient>(attention->options(), /*to_bf16=*/true);
}

// If only the cast reads a value, the node that computes it writes bf16.
std::vector<Node> FoldCasts(const Graph& graph, std::vector<Node> nodes) {
  std::map<ValueId, int> readers;
  for (const Node& node : nodes) {
    for (const ValueId input : node.inputs) ++readers[input];
  }
  std::map<ValueId, std::size_t> makers;  // index in `folded`
  std::vector<Node> folded;
  for (Node& node : nodes) {
    if (dynamic_cast<const Cast*>(node.function.get()) != nullptr) {
      const ValueId value = node.inputs[0];
      const auto maker = makers.find(value);
      const bool only = readers[value] == 1 && graph.value(value).kind == ValueKind::kActivation;
      const auto function =
          only && maker != makers.end() ? WithBf16Output(folded[maker->second]) : nullptr;
      if (function != nullptr) {
        folded[maker->second].function = function;
        folded[maker->second].outputs[0] = node.outputs[0];
        continue;
      }
    }
    makers[node.outputs[0]] = folded.size();
    folded.push_back(std::move(node));
  }
  return folded;
}

}  // namespace

Status RoundProductsToBf16(Graph& graph) {
  const std::vector<Node> recorded(graph.nodes().begin(), graph.nodes().end());
  std::map<ValueId, ValueId> rounded;
  std::vector<Node> nodes;
  for (Node node : recorded) {
    Bf16Product product = ToBf16Product(node);
    if (product.function != nullptr) node.function = std::move(product.function);
    // It only uses the sign of y.
    if (dynamic_cast<const ReluGradient*>(node.function.get()) != nullptr) {
      const auto y = rounded.find(node.inputs[1]);
      if (y != rounded.end()) node.inputs[1] = y->second;
    }
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
  graph.ReplaceNodes(FoldCasts(graph, std::move(nodes)));
  return Status::Ok();
}

}  // namespace gaccd
