// FuseForCuda() and CheckCudaKernels(): what is decided about the GPU from the graph alone, also
// where gaccd is built without CUDA.
#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/autograd/function.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/fused.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/softmax_cross_entropy.h"

namespace gaccd {
namespace {

constexpr std::array<std::string_view, 18> kCudaKernels = {
    "accumulate",
    "add",
    "bias_gradient",
    "cast",
    "correct_count",
    "linear",
    "linear_input_gradient",
    "linear_weight_bias_gradient",
    "linear_weight_gradient",
    "mean_squared_error",
    "mean_squared_error_fused",
    "mean_squared_error_gradient",
    "relu",
    "relu_gradient",
    "softmax_cross_entropy",
    "softmax_cross_entropy_fused",
    "softmax_cross_entropy_gradient",
    "softmax_cross_entropy_loss",
};

template <typename F>
bool Is(const Node& node) {
  return dynamic_cast<const F*>(node.function.get()) != nullptr;
}

// What the nodes of a graph do with its values. Kept up to date while nodes are merged: entries of
// `nodes` that are gone are empty.
class Fuser {
 public:
  explicit Fuser(Graph& graph) : graph_(graph) {
    for (const Node& node : graph.nodes()) nodes_.emplace_back(node);
  }

  void FuseLinear() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i] || !Is<LinearWeightGradient>(*nodes_[i])) continue;
      const ValueId weight = nodes_[i]->outputs[0];
      const std::optional<std::size_t> j = BiasGradientOf(nodes_[i]->inputs[0]);
      if (!j || !IsGradient(weight) || !IsGradient(nodes_[*j]->outputs[0])) continue;
      // Both gradients are inputs of nothing, so the place is free; dy and x are there at the
      // first.
      const std::size_t place = std::min(i, *j);
      const std::size_t other = std::max(i, *j);
      if (place != i && !MadeBefore(nodes_[i]->inputs[1], place)) continue;
      nodes_[place] = Node{std::make_shared<LinearWeightBiasGradient>(),
                           nodes_[i]->inputs,
                           {weight, nodes_[*j]->outputs[0]}};
      nodes_[other].reset();
    }
  }

  // loss -> (loss_sum, ...) and its gradient(..., dloss) -> dinput  =>  (dinput, loss_sum), where
  // the loss stood. dloss is the gradient's input 2.
  template <typename Loss, typename LossGradient, typename Fused>
  void FuseLoss() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i] || !Is<Loss>(*nodes_[i])) continue;
      const std::optional<std::size_t> j = GradientOf<LossGradient>(*nodes_[i]);
      if (!j || !MadeBefore(nodes_[*j]->inputs[2], i) || !OnlyReadBy(*nodes_[i], *j)) continue;
      nodes_[i] = Node{std::make_shared<Fused>(),
                       {nodes_[i]->inputs[0], nodes_[i]->inputs[1], nodes_[*j]->inputs[2]},
                       {nodes_[*j]->outputs[0], nodes_[i]->outputs[0]}};
      nodes_[*j].reset();
    }
  }

  // Probabilities that nobody reads need neither memory nor writing.
  void DropProbabilities() {
    for (std::size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i] || !Is<SoftmaxCrossEntropy>(*nodes_[i]) || !OnlyReadBy(*nodes_[i], i))
        continue;
      nodes_[i] = Node{
          std::make_shared<SoftmaxCrossEntropyLoss>(), nodes_[i]->inputs, {nodes_[i]->outputs[0]}};
    }
  }

  void Finish() {
    std::vector<Node> left;
    for (std::optional<Node>& node : nodes_) {
      if (node) left.push_back(std::move(*node));
    }
    graph_.ReplaceNodes(std::move(left));
  }

 private:
  std::optional<std::size_t> BiasGradientOf(ValueId dy) const {
    for (std::size_t j = 0; j < nodes_.size(); ++j) {
      if (nodes_[j] && Is<BiasGradient>(*nodes_[j]) && nodes_[j]->inputs[0] == dy) return j;
    }
    return std::nullopt;
  }

  // The gradient node of this loss: it reads the loss's target and, as its first input, the loss's
  // probabilities or prediction.
  template <typename LossGradient>
  std::optional<std::size_t> GradientOf(const Node& loss) const {
    const ValueId read = loss.outputs.size() > 1 ? loss.outputs[1] : loss.inputs[0];
    for (std::size_t j = 0; j < nodes_.size(); ++j) {
      if (nodes_[j] && Is<LossGradient>(*nodes_[j]) && nodes_[j]->inputs[0] == read &&
          nodes_[j]->inputs[1] == loss.inputs[1]) {
        return j;
      }
    }
    return std::nullopt;
  }

  bool IsGradient(ValueId value) const {
    return graph_.value(value).kind == ValueKind::kParameterGradient;
  }

  bool MadeBefore(ValueId value, std::size_t place) const {
    for (std::size_t i = place; i < nodes_.size(); ++i) {
      if (nodes_[i] && std::ranges::count(nodes_[i]->outputs, value) > 0) return false;
    }
    return true;
  }

  // What the loss gives beside its sum is read by node j alone and by no caller.
  bool OnlyReadBy(const Node& loss, std::size_t j) const {
    for (std::size_t o = 1; o < loss.outputs.size(); ++o) {
      if (graph_.value(loss.outputs[o]).kind != ValueKind::kActivation) return false;
      for (std::size_t i = 0; i < nodes_.size(); ++i) {
        if (i == j || !nodes_[i]) continue;
        if (std::ranges::count(nodes_[i]->inputs, loss.outputs[o]) > 0) return false;
      }
    }
    return true;
  }

  Graph& graph_;
  std::vector<std::optional<Node>> nodes_;
};

}  // namespace

bool HasCudaKernel(std::string_view function) {
  return std::ranges::count(kCudaKernels, function) > 0;
}

Status CheckCudaKernels(const Graph& graph) {
  std::set<std::string_view> missing;
  for (const Node& node : graph.nodes()) {
    const std::string_view name = node.function->name();
    if (!node.function->is_view() && !HasCudaKernel(name)) missing.insert(name);
  }
  if (missing.empty()) return Status::Ok();
  std::string names;
  for (const std::string_view name : missing)
    names += StrCat(names.empty() ? "'" : ", '", name, "'");
  return {ErrorKind::kConfig, StrCat("no kernel for the GPU: ", names, "; use device cpu")};
}

void FuseForCuda(Graph& graph) {
  Fuser fuser(graph);
  fuser.FuseLinear();
  fuser.FuseLoss<SoftmaxCrossEntropy, SoftmaxCrossEntropyGradient, SoftmaxCrossEntropyFused>();
  fuser.FuseLoss<MeanSquaredError, MeanSquaredErrorGradient, MeanSquaredErrorFused>();
  fuser.DropProbabilities();
  fuser.Finish();
}

}  // namespace gaccd
