// What is decided from a graph alone: no GPU, no stand-in, also without CUDA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "daemon/autograd/add.h"
#include "daemon/autograd/simplify.h"
#include "daemon/device/cpu/bf16_of_cpu.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/ops/activations.h"
#include "daemon/ops/bf16_products.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/relu.h"
#include "daemon/ops/softmax_cross_entropy.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/engine/graph_bench.h"
#include "tests/unit/engine/model_bench.h"

namespace gaccd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> Names(const Graph& graph) {
  std::vector<std::string> names;
  for (const Node& node : graph.nodes()) names.emplace_back(node.function->name());
  return names;
}

Graph Training(LossKind loss) { return MakeMlp({5, 4, 3}, loss).RecordTraining({2}).value().graph; }

// How often each of these functions is in the graph.
std::vector<std::ptrdiff_t> Counts(const Graph& graph, const std::vector<std::string>& functions) {
  std::vector<std::ptrdiff_t> counts;
  for (const std::string& name : functions) {
    counts.push_back(std::ranges::count(Names(graph), name));
  }
  return counts;
}

TEST(FuseForCuda, LossAndGradientsOfALayer) {
  for (const auto& [kind, loss] :
       {std::pair(LossKind::kSoftmaxCrossEntropy, "softmax_cross_entropy"),
        std::pair(LossKind::kMeanSquaredError, "mean_squared_error")}) {
    const std::string name = loss;
    Graph graph = Training(kind);
    FuseForCuda(graph);
    EXPECT_THAT(Counts(graph, {name, name + "_gradient", name + "_fused"}), ElementsAre(0, 0, 1));
    EXPECT_THAT(
        Counts(graph, {"linear_weight_gradient", "bias_gradient", "linear_weight_bias_gradient"}),
        ElementsAre(0, 0, 2));
    EXPECT_TRUE(CheckCudaKernels(graph).ok());
  }
}

TEST(FuseForCuda, AddThenLayerNorm) {
  Graph graph;
  const ValueSpec x{{4, 6}, DType::kF32};
  const ValueId a = graph.AddInput("a", x);
  const ValueId b = graph.AddInput("b", x);
  const ValueId gamma = graph.AddParameter("gamma", {6}, 0);
  const ValueId beta = graph.AddParameter("beta", {6}, 1);
  const ValueId sum = graph.Apply(std::make_shared<Add>(), {a, b}).value()[0];
  const auto first = graph.Apply(std::make_shared<LayerNorm>(), {sum, gamma, beta}).value();
  const auto second = graph.Apply(std::make_shared<LayerNorm>(), {first[0], gamma, beta}).value();
  graph.MarkOutput(sum);
  graph.MarkOutput(second[0]);
  FuseForCuda(graph);
  EXPECT_THAT(Names(graph), ElementsAre("add_layer_norm", "layer_norm"));
  EXPECT_THAT(graph.nodes()[0].inputs, ElementsAre(a, b, gamma, beta));
  EXPECT_THAT(graph.nodes()[0].outputs, ElementsAre(sum, first[0], first[1], first[2]));
  EXPECT_TRUE(CheckCudaKernels(graph).ok());
}

// The specs of the values still fit what the fused functions infer.
TEST(FuseForCuda, OutputsAreWhatTheFunctionsInfer) {
  for (const LossKind loss : {LossKind::kSoftmaxCrossEntropy, LossKind::kMeanSquaredError}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      Graph graph = MakeMlp({5, 4, 3}, loss).RecordTraining({2}, precision).value().graph;
      FuseForCuda(graph);
      for (const Node& node : graph.nodes()) {
        std::vector<ValueSpec> inputs;
        for (const ValueId id : node.inputs) inputs.push_back(graph.value(id).spec);
        const auto outputs = node.function->Infer(inputs);
        ASSERT_TRUE(outputs.ok()) << outputs.status().message();
        ASSERT_EQ(outputs->size(), node.outputs.size()) << node.function->name();
        for (std::size_t o = 0; o < outputs->size(); ++o) {
          EXPECT_EQ((*outputs)[o], graph.value(node.outputs[o]).spec) << node.function->name();
        }
      }
    }
  }
}

TEST(FuseForCuda, LeavesWhatHasOtherUsers) {
  GraphBench bench;
  const ValueId z = bench.Parameter("z", {3, 4});
  const auto outputs =
      bench.ApplyAll(std::make_shared<SoftmaxCrossEntropy>(), {z, bench.Labels(3, 4)});
  bench.graph().MarkOutput(outputs[1]);  // the caller wants the probabilities, too
  bench.PrepareTraining(outputs[0]);
  Graph graph = bench.graph();
  FuseForCuda(graph);
  EXPECT_THAT(Counts(graph, {"softmax_cross_entropy", "softmax_cross_entropy_gradient",
                             "softmax_cross_entropy_fused"}),
              ElementsAre(1, 1, 0));
}

TEST(FuseForCuda, GradientsOfTiedWeightsToo) {
  GraphBench bench;
  const ValueId w = bench.Parameter("w", {4, 4});
  const ValueId x = bench.Input("x", {3, 4});
  const ValueId y = bench.Apply(std::make_shared<Linear>(), {x, w, bench.Parameter("b1", {4})});
  const ValueId z = bench.Apply(std::make_shared<Linear>(), {y, w, bench.Parameter("b2", {4})});
  bench.PrepareTraining(
      bench.Apply(std::make_shared<MeanSquaredError>(), {z, bench.Input("t", {3, 4})}));
  Graph graph = bench.graph();
  FuseForCuda(graph);
  EXPECT_THAT(Counts(graph, {"linear_weight_bias_gradient"}), ElementsAre(2));
}

TEST(FuseForCuda, AnEvaluationKeepsNoProbabilities) {
  Graph graph = MakeMlp({5, 4, 3}).RecordEvaluation({2}).value().graph;
  FuseForCuda(graph);
  EXPECT_THAT(Counts(graph, {"softmax_cross_entropy", "softmax_cross_entropy_loss"}),
              ElementsAre(0, 1));
}

class Unknown : public Relu {
 public:
  explicit Unknown(std::string_view name) : name_(name) {}
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  std::string_view name_;
};

// Known without CUDA, too.
TEST(HasCudaKernel, FollowsTheTable) {
  EXPECT_TRUE(HasCudaKernel("linear"));
  EXPECT_TRUE(HasCudaKernel("softmax_cross_entropy_fused"));  // which the CPU has not
  EXPECT_FALSE(HasCudaKernel("unheard_of"));
}

TEST(CheckCudaKernels, NamesEveryFunctionThatHasNone) {
  Graph graph;
  ValueId x = graph.AddInput("x", {{2}, DType::kF32});
  for (const char* name : {"swish", "relu", "erf", "swish"}) {
    x = graph.Apply(std::make_shared<Unknown>(name), {x}).value()[0];
  }
  const Status status = CheckCudaKernels(graph);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(HasSubstr("no kernel for the GPU: 'erf', 'swish'")));
}

// ReLU is folded into the product before it, and of it only rounded values are read.
TEST(RoundProductsToBf16, RoundsEveryOperandOnce) {
  const Model model = MakeMlp({5, 4, 4, 3});
  auto training = model.RecordTraining({2});
  ASSERT_TRUE(training.ok()) << training.status().message();
  Graph& graph = training->graph;
  const Status rounded = RoundProductsToBf16(graph);
  ASSERT_TRUE(rounded.ok()) << rounded.message();
  std::map<std::string, int> made;
  for (const Node& node : graph.nodes()) {
    const auto type = [&](ValueId id) { return graph.value(id).spec.dtype; };
    const std::string name(node.function->name());
    if (type(node.outputs[0]) == DType::kBF16) ++made[name];
    if (name == "relu_gradient") {
      EXPECT_EQ(type(node.inputs[1]), DType::kBF16);
    }
    const bool product = name.starts_with("linear") || name == "bias_gradient";
    EXPECT_EQ(type(node.inputs[0]), product ? DType::kBF16 : DType::kF32) << name;
  }
  // Casts: of the samples, and of the gradient of the loss.
  const std::map<std::string, int> expected = {{"cast", 2}, {"linear", 2}, {"relu_gradient", 2}};
  EXPECT_EQ(made, expected);
}

// Of the two norms, the second one is read by more than products.
TEST(RoundProductsToBf16, LeavesTheRoundingToWhatMakesAValue) {
  GraphBench bench;
  const auto norm = [&](const std::string& name, ValueId x) {
    return bench.Apply(std::make_shared<LayerNorm>(), {x, bench.Parameter(name + ".weight", {8}),
                                                       bench.Parameter(name + ".bias", {8})});
  };
  const auto linear = [&](const std::string& name, ValueId x) {
    return bench.Apply(std::make_shared<Linear>(), {x, bench.Parameter(name + ".weight", {8, 8}),
                                                    bench.Parameter(name + ".bias", {8})});
  };
  const ValueId hidden = linear("fc1", norm("ln1", linear("embed", bench.Input("x", {6, 8}))));
  const ValueId gelu = bench.Apply(std::make_shared<Activation>(ActivationKind::kGelu), {hidden});
  const ValueId both = norm("ln2", linear("fc2", gelu));
  const ValueId sum = bench.Apply(std::make_shared<Add>(), {both, linear("fc3", both)});
  bench.RecordTraining(
      bench.Apply(std::make_shared<MeanSquaredError>(), {sum, bench.Input("t", {6, 8})}));
  ASSERT_TRUE(RoundProductsToBf16(bench.graph()).ok());
  std::map<std::string, int> rounded;
  std::set<ValueId> cast;
  for (const Node& node : bench.graph().nodes()) {
    const bool bf16 = bench.graph().value(node.outputs[0]).spec.dtype == DType::kBF16;
    if (bf16) ++rounded[std::string(node.function->name())];
    if (node.function->name() == "cast") cast.insert(node.inputs[0]);
  }
  EXPECT_EQ(rounded["layer_norm"], 1);
  EXPECT_EQ(rounded["gelu"], 1);
  EXPECT_EQ(rounded["gelu_gradient"], 1);
  EXPECT_TRUE(cast.contains(both));
  EXPECT_FALSE(cast.contains(gelu));
}

// Graphs for GPUs, of bf16 activations.
TEST(Bf16OnTheCpu, IsRefusedByName) {
  // Where oneDNN has no such products, they are refused first, and a job long before.
  if (Bf16OfCpu() == CpuBf16::kNone) GTEST_SKIP() << "this CPU has " << Name(Bf16OfCpu());
  const Model model = MakeMlp({5, 3});
  auto recorded = model.RecordTraining({2}, Precision::kBF16);
  ASSERT_TRUE(recorded.ok()) << recorded.status().message();
  auto context = CpuContext::Create();
  ASSERT_TRUE(context.ok());
  const auto kernels = MakeCpuKernels(**context, {});
  std::vector<float> memory(static_cast<std::size_t>(model.layout().size()));
  const auto executor = Executor::Prepare(
      std::move(recorded->graph), {&model.layout(), memory.data(), memory.data()}, *kernels);
  ASSERT_FALSE(executor.ok());
  EXPECT_THAT(executor, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(executor,
              HasMessage(HasSubstr(
                  "'softmax_cross_entropy' has no kernel for bf16 on the CPU: expected f32")));
}

}  // namespace
}  // namespace gaccd
