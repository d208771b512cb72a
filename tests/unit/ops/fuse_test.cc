// What is decided from a graph alone: no GPU, no stand-in, also without CUDA.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "daemon/autograd/add.h"
#include "daemon/autograd/memory_plan.h"
#include "daemon/autograd/passes.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/multiply.h"
#include "daemon/ops/product/linear.h"
#include "tests/support/graph_bench.h"
#include "tests/support/model_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

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
  for (const auto& [kind, loss] : {std::pair(LossKind::kSoftmaxCrossEntropy, "token_cross_entropy"),
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

// Of both norms of a block; the gradient of the last norm is the only one of its input.
TEST(FuseForCuda, LayerNormGradientThenAddInGpt) {
  const GptSpec gpt{.vocabulary = 13, .context = 4, .layers = 3, .heads = 2, .width = 16};
  Graph graph = Model::MakeWithoutData({.loss = SoftmaxCrossEntropySpec{}, .architecture = gpt})
                    .value()
                    .RecordTraining({2}, Precision::kBF16)
                    .value()
                    .graph;
  FuseForCuda(graph);
  EXPECT_THAT(Counts(graph, {"layer_norm_gradient", "layer_norm_gradient_add", "add"}),
              ElementsAre(1, 6, 0));
  EXPECT_TRUE(CheckCudaKernels(graph).ok());
}

// A layer norm gradient and the inputs for it.
struct NormGradient {
  NormGradient() {
    const ValueSpec of_rows{{4}, DType::kF32};
    inputs = {graph.AddInput("dy", rows), graph.AddInput("x", rows),
              graph.AddParameter("gamma", {6}, 0), graph.AddInput("mean", of_rows),
              graph.AddInput("rstd", of_rows)};
    residual = graph.AddInput("residual", rows);
    outputs = Apply(std::make_shared<LayerNormGradient>(), inputs);
  }
  std::vector<ValueId> Apply(const std::shared_ptr<const Function>& function,
                             std::vector<ValueId> of) {
    return graph.Apply(function, std::move(of)).value();
  }
  std::vector<std::string> FusedNames() {
    FuseForCuda(graph);
    return Names(graph);
  }

  Graph graph;
  ValueSpec rows{{4, 6}, DType::kF32};
  std::vector<ValueId> inputs, outputs;
  ValueId residual;
};

TEST(FuseForCuda, LayerNormGradientThenAdd) {
  for (const bool dx_first : {false, true}) {
    NormGradient norm;
    const ValueId dx = norm.outputs[0];
    const auto sum = norm.Apply(std::make_shared<Add>(),
                                {dx_first ? dx : norm.residual, dx_first ? norm.residual : dx});
    norm.graph.MarkOutput(sum[0]);
    EXPECT_THAT(norm.FusedNames(), ElementsAre("layer_norm_gradient_add"));
    const Node& node = norm.graph.nodes()[0];
    norm.inputs.push_back(norm.residual);
    EXPECT_EQ(node.inputs, norm.inputs);
    EXPECT_THAT(node.outputs, ElementsAre(sum[0], norm.outputs[1], norm.outputs[2]));
    EXPECT_TRUE(CheckCudaKernels(norm.graph).ok());
  }
}

TEST(FuseForCuda, KeepsLayerNormGradientWithOtherReaders) {
  {
    NormGradient norm;
    norm.Apply(std::make_shared<Add>(), {norm.residual, norm.outputs[0]});
    norm.Apply(std::make_shared<Relu>(), {norm.outputs[0]});
    EXPECT_THAT(norm.FusedNames(), ElementsAre("layer_norm_gradient", "add", "relu"));
  }
  {
    NormGradient norm;
    norm.Apply(std::make_shared<Add>(), {norm.residual, norm.outputs[0]});
    norm.graph.MarkOutput(norm.outputs[0]);
    EXPECT_THAT(norm.FusedNames(), ElementsAre("layer_norm_gradient", "add"));
  }
  {
    NormGradient norm;
    norm.Apply(std::make_shared<Add>(), {norm.outputs[0], norm.outputs[0]});
    EXPECT_THAT(norm.FusedNames(), ElementsAre("layer_norm_gradient", "add"));
  }
  {  // the residual is made after it
    NormGradient norm;
    const auto late = norm.Apply(std::make_shared<Relu>(), {norm.residual});
    norm.Apply(std::make_shared<Add>(), {late[0], norm.outputs[0]});
    EXPECT_THAT(norm.FusedNames(), ElementsAre("layer_norm_gradient", "relu", "add"));
  }
}

Model Gpt(std::int64_t vocabulary = 13) {
  const GptSpec gpt{.vocabulary = vocabulary, .context = 10, .layers = 1, .heads = 2, .width = 16};
  return Model::MakeWithoutData({.loss = SoftmaxCrossEntropySpec{}, .architecture = gpt}).value();
}

// The specs of the values still fit what the functions infer.
void ExpectInferred(const Graph& graph) {
  for (const Node& node : graph.nodes()) {
    std::vector<ValueSpec> inputs;
    for (const ValueId id : node.inputs) inputs.push_back(graph.value(id).spec);
    const auto outputs = ValueOrThrow(node.function->Infer(inputs));
    ASSERT_EQ(outputs.size(), node.outputs.size()) << node.function->name();
    for (std::size_t o = 0; o < outputs.size(); ++o) {
      EXPECT_EQ(outputs[o], graph.value(node.outputs[o]).spec) << node.function->name();
    }
  }
}

TEST(FuseForCuda, OutputsEqualInferredSpecs) {
  for (const LossKind loss : {LossKind::kSoftmaxCrossEntropy, LossKind::kMeanSquaredError}) {
    for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
      Graph graph = MakeMlp({5, 4, 3}, loss).RecordTraining({2}, precision).value().graph;
      FuseForCuda(graph);
      ExpectInferred(graph);
    }
  }
  for (Graph graph : {Gpt().RecordTraining({2}, Precision::kBF16).value().graph,
                      Gpt().RecordEvaluation({2}, Precision::kBF16).value().graph}) {
    FuseForCuda(graph);
    ExpectInferred(graph);
  }
}

TEST(FuseForCuda, FusesGradientsOfTiedWeights) {
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

// Two layers [x, 5] -> hidden -> 3 with an activation between.
struct TwoLayers {
  TwoLayers(ActivationKind kind, std::int64_t hidden, bool pre_is_read = false) {
    const ValueId x = bench.Input("x", {6, 5});
    const auto layer = [&](const char* name, ValueId in, std::int64_t from, std::int64_t to) {
      return bench.Apply(std::make_shared<Linear>(false, WeightOrder::kInOut),
                         {in, bench.Parameter(std::string("w") + name, {from, to}),
                          bench.Parameter(std::string("b") + name, {to})});
    };
    pre = layer("1", x, 5, hidden);
    y = bench.Apply(std::make_shared<Activation>(kind), {pre});
    const ValueId z = pre_is_read ? bench.Apply(std::make_shared<Add>(), {y, pre}) : y;
    last = layer("2", z, hidden, 3);
  }
  Graph Training() {
    bench.PrepareTraining(
        bench.Apply(std::make_shared<MeanSquaredError>(), {last, bench.Input("t", {6, 3})}));
    return bench.graph();
  }

  GraphBench bench;
  ValueId pre = -1, y = -1, last = -1;
};

const std::vector<std::string> kGelu = {"linear", "gelu_tanh", "gelu_tanh_gradient",
                                        "linear_gelu_tanh", "linear_gelu_tanh_input_gradient"};

const Node& FindNode(const Graph& graph, std::string_view name) {
  return *std::ranges::find_if(graph.nodes(),
                               [&](const Node& node) { return node.function->name() == name; });
}

TEST(FuseForCuda, FusesGeluTanhIntoBothProducts) {
  TwoLayers layers(ActivationKind::kGeluTanh, 16);
  Graph graph = layers.Training();
  FuseForCuda(graph);
  EXPECT_THAT(Counts(graph, kGelu), ElementsAre(1, 0, 0, 1, 1));
  const Node& forward = FindNode(graph, "linear_gelu_tanh");
  EXPECT_THAT(forward.outputs, ElementsAre(layers.y, layers.pre));
  const Node& backward = FindNode(graph, "linear_gelu_tanh_input_gradient");
  EXPECT_EQ(backward.inputs[2], layers.pre);
  // What it writes is what the gradients of the first layer read.
  const auto weight = [&](const Node& node) {
    return node.function->name() == "linear_weight_bias_gradient" &&
           node.inputs[1] == backward.outputs[0];
  };
  EXPECT_EQ(std::ranges::count_if(graph.nodes(), weight), 1);
  EXPECT_TRUE(CheckCudaKernels(graph).ok());
}

TEST(FuseForCuda, GeluTanhInEvaluationKeepsNoInput) {
  for (const std::int64_t hidden : {16, 12}) {
    TwoLayers layers(ActivationKind::kGeluTanh, hidden);
    layers.bench.graph().MarkOutput(layers.last);
    Graph graph = layers.bench.graph();
    FuseForCuda(graph);
    EXPECT_THAT(Counts(graph, kGelu), ElementsAre(1, 0, 0, 1, 0));
    EXPECT_THAT(FindNode(graph, "linear_gelu_tanh").outputs, ElementsAre(layers.y));
  }
}

// cuBLASLt has no GELU with erf, and keeps the input of one only in rows of multiples of 8.
TEST(FuseForCuda, KeepsOtherActivationsAndWidths) {
  for (const auto& [kind, hidden] :
       {std::pair{ActivationKind::kGelu, 16}, std::pair{ActivationKind::kSilu, 16},
        std::pair{ActivationKind::kGeluTanh, 12}}) {
    TwoLayers layers(kind, hidden);
    Graph graph = layers.Training();
    FuseForCuda(graph);
    EXPECT_THAT(Counts(graph, {"linear", "linear_gelu_tanh", "linear_gelu_tanh_input_gradient"}),
                ElementsAre(2, 0, 0));
  }
}

TEST(FuseForCuda, KeepsGeluInputForOtherReaders) {
  TwoLayers layers(ActivationKind::kGeluTanh, 16, /*pre_is_read=*/true);
  layers.bench.graph().MarkOutput(layers.last);
  Graph graph = layers.bench.graph();
  FuseForCuda(graph);
  EXPECT_THAT(Names(graph), ElementsAre("linear_gelu_tanh", "add", "linear"));
  EXPECT_THAT(graph.nodes()[0].outputs, ElementsAre(layers.y, layers.pre));
}

// Where anybody else reads the gradient of GELU's output, there must be one.
TEST(FuseForCuda, KeepsGradientWithTwoReaders) {
  enum class Also { kNobody, kANode, kTheCaller };
  for (const Also also : {Also::kNobody, Also::kANode, Also::kTheCaller}) {
    Graph graph;
    const ValueId dz = graph.AddInput("dz", {{6, 3}, DType::kF32});
    const ValueId pre = graph.AddInput("pre", {{6, 16}, DType::kF32});
    const ValueId w = graph.AddParameter("w", {3, 16}, 0);
    const ValueId dy = graph.Apply(std::make_shared<LinearInputGradient>(), {dz, w}).value()[0];
    const auto gradient = std::make_shared<ActivationGradient>(ActivationKind::kGeluTanh);
    graph.MarkOutput(graph.Apply(gradient, {dy, pre}).value()[0]);
    if (also == Also::kANode) {
      graph.MarkOutput(graph.Apply(std::make_shared<Relu>(), {dy}).value()[0]);
    }
    if (also == Also::kTheCaller) graph.MarkOutput(dy);
    FuseForCuda(graph);
    EXPECT_THAT(Counts(graph, {"linear_input_gradient", "linear_gelu_tanh_input_gradient"}),
                also == Also::kNobody ? ElementsAre(0, 1) : ElementsAre(1, 0));
  }
}

// The sums are those of dy, which is the second factor of Conv1D's weight gradient.
TEST(FuseForCuda, BiasGradientOfEitherOrder) {
  for (const WeightOrder order : {WeightOrder::kOutIn, WeightOrder::kInOut}) {
    GraphBench bench;
    const bool in_out = order == WeightOrder::kInOut;
    const ValueId x = bench.Input("x", {3, 5});
    const ValueId w = bench.Parameter("w", in_out ? Shape{5, 4} : Shape{4, 5});
    const ValueId y =
        bench.Apply(std::make_shared<Linear>(false, order), {x, w, bench.Parameter("b", {4})});
    bench.PrepareTraining(
        bench.Apply(std::make_shared<MeanSquaredError>(), {y, bench.Input("t", {3, 4})}));
    Graph graph = bench.graph();
    FuseForCuda(graph);
    EXPECT_THAT(
        Counts(graph, {"linear_weight_gradient", "bias_gradient", "linear_weight_bias_gradient"}),
        ElementsAre(0, 0, 1));
    for (const Node& node : graph.nodes()) {
      const auto* function = dynamic_cast<const LinearWeightBiasGradient*>(node.function.get());
      if (function == nullptr) continue;
      EXPECT_EQ(node.inputs[in_out ? 0 : 1], x);
      EXPECT_EQ(function->place_of_dy(), in_out ? 1U : 0U);
    }
  }
}

const std::vector<std::string> kTokenLosses = {
    "token_cross_entropy", "token_cross_entropy_gradient", "token_cross_entropy_fused",
    "token_cross_entropy_loss"};

// In one pass, and the gradient lies where the logits were.
TEST(FuseForCuda, FusesTokenLossOfGpt) {
  Graph graph = Gpt().RecordTraining({2}, Precision::kBF16).value().graph;
  FuseForCuda(graph);
  EXPECT_THAT(Counts(graph, kTokenLosses), ElementsAre(0, 0, 1, 0));
  const auto loss = std::ranges::find(graph.nodes(), "token_cross_entropy_fused",
                                      [](auto& node) { return node.function->name(); });
  const MemoryPlan plan = PlanMemory(graph);
  EXPECT_EQ(plan.storage[Index(loss->outputs[0])], plan.storage[Index(loss->inputs[0])]);
  EXPECT_TRUE(CheckCudaKernels(graph).ok());

  Graph evaluation = Gpt().RecordEvaluation({2}, Precision::kBF16).value().graph;
  FuseForCuda(evaluation);
  EXPECT_THAT(Counts(evaluation, kTokenLosses), ElementsAre(0, 0, 0, 1));
  EXPECT_TRUE(CheckCudaKernels(evaluation).ok());
}

// The logits, and their gradient if there is one.
std::vector<ValueSpec> SpecsOfLogits(const Graph& graph, std::int64_t vocabulary) {
  std::vector<ValueSpec> specs;
  for (const Value& value : graph.values()) {
    const Shape& shape = value.spec.shape;
    if (value.kind == ValueKind::kActivation && shape.size() == 2 && shape[1] == vocabulary) {
      specs.push_back(value.spec);
    }
  }
  return specs;
}

TEST(PadRows, PadsLogitsOfOddVocabulary) {
  const auto strides = [](Graph graph, std::int64_t vocabulary) {
    FuseForCuda(graph);
    std::vector<std::int64_t> found;
    for (const ValueSpec& spec : SpecsOfLogits(graph, vocabulary)) found.push_back(spec.row_stride);
    return found;
  };
  const auto training = [&](std::int64_t vocabulary, Precision precision) {
    return strides(Gpt(vocabulary).RecordTraining({2}, precision).value().graph, vocabulary);
  };
  EXPECT_THAT(training(1030, Precision::kBF16), ElementsAre(1088, 1088));
  EXPECT_THAT(training(1030, Precision::kFP16), ElementsAre(1088, 1088));
  EXPECT_THAT(training(1030, Precision::kF32), ElementsAre(0, 0));
  EXPECT_THAT(training(1032, Precision::kBF16), ElementsAre(0, 0));  // whole 16 bytes
  EXPECT_THAT(training(1022, Precision::kBF16), ElementsAre(0, 0));  // narrow
  EXPECT_THAT(strides(Gpt(1030).RecordEvaluation({2}, Precision::kBF16).value().graph, 1030),
              ElementsAre(1088));
}

// The same memory for logits and gradient, as large as rows with a stride are.
TEST(PadRows, CountsInMemoryPlan) {
  Graph graph = Gpt(1030).RecordTraining({2}, Precision::kBF16).value().graph;
  FuseForCuda(graph);
  const std::int64_t padded = PlanMemory(graph).arena_bytes;
  const ValueSpec spec = SpecsOfLogits(graph, 1030).at(0);
  EXPECT_EQ(spec.bytes(), spec.shape[0] * 1088 * 2);
  for (std::size_t v = 0; v < graph.values().size(); ++v) {
    graph.SetRowStride(static_cast<ValueId>(v), 0);
  }
  const std::int64_t dense = PlanMemory(graph).arena_bytes;
  EXPECT_GE(padded, dense + spec.shape[0] * 58 * 2 - 64);
  EXPECT_LT(padded, dense + 2 * spec.shape[0] * 58 * 2);
}

// `add` takes no stride, and a caller reads rows that follow each other: neither the logits nor
// their gradient get one.
TEST(PadRows, DoesNotPadForReaderWithoutSupport) {
  enum class Reader { kNone, kAdd, kCaller };
  for (const Reader other : {Reader::kNone, Reader::kAdd, Reader::kCaller}) {
    GraphBench bench;
    const ValueId table = bench.Parameter("table", {3, 4});
    const ValueId x = bench.Apply(std::make_shared<Embedding>(DType::kBF16),
                                  {bench.Ids("ids", {3}, {0, 1, 2}), table});
    const ValueId z = bench.Apply(std::make_shared<Linear>(), {x, bench.Parameter("w", {1030, 4})});
    if (other == Reader::kAdd) {
      bench.graph().MarkOutput(bench.Apply(std::make_shared<Add>(), {z, z}));
    }
    if (other == Reader::kCaller) bench.graph().MarkOutput(z);
    bench.RecordTraining(
        bench.Apply(std::make_shared<TokenCrossEntropy>(), {z, bench.Labels(3, 1030)}));
    FuseForCuda(bench.graph());
    for (const Value& value : bench.graph().values()) {
      if (value.spec.shape != Shape{3, 1030}) continue;
      EXPECT_EQ(value.spec.row_stride, other == Reader::kNone ? 1088 : 0) << value.name;
    }
  }
}

struct TokenGraph {
  ValueId logits;
  std::vector<ValueId> outputs;
};
TokenGraph RecordTokenLoss(GraphBench& bench, bool weighted) {
  const ValueId x = bench.Input("x", {3, 4});
  const ValueId z = bench.Apply(std::make_shared<Linear>(), {x, bench.Parameter("w", {5, 4})});
  std::vector<ValueId> inputs = {z, bench.Labels(3, 5)};
  if (weighted) inputs.push_back(bench.Input("weights", {3}));
  const TokenCrossEntropyOptions options{.label_smoothing = 0.25F};
  return {z, bench.ApplyAll(std::make_shared<TokenCrossEntropy>(options), inputs)};
}

TEST(FuseForCuda, TokenLossKeepsWeightsAndOptions) {
  GraphBench bench;
  const TokenGraph loss = RecordTokenLoss(bench, true);
  bench.RecordTraining(loss.outputs[0]);
  FuseForCuda(bench.graph());
  EXPECT_THAT(Counts(bench.graph(), kTokenLosses), ElementsAre(0, 0, 1, 0));
  for (const Node& node : bench.graph().nodes()) {
    const auto* fused = dynamic_cast<const TokenCrossEntropyFused*>(node.function.get());
    if (fused == nullptr) continue;
    EXPECT_EQ(fused->options().label_smoothing, 0.25F);
    ASSERT_EQ(node.inputs.size(), 4U);
    EXPECT_EQ(bench.graph().value(node.inputs[2]).spec.shape, Shape{1});
    EXPECT_EQ(bench.graph().value(node.inputs[3]).name, "weights");
  }
}

// The logits then keep their memory.
TEST(FuseForCuda, DoesNotOverwriteLogitsReadAfterLoss) {
  GraphBench bench;
  const TokenGraph loss = RecordTokenLoss(bench, false);
  const auto ranks =
      bench.ApplyAll(std::make_shared<LabelRanks>(), {loss.logits, bench.Labels(3, 5)});
  for (const ValueId output : ranks) bench.graph().MarkOutput(output);
  bench.RecordTraining(loss.outputs[0]);
  FuseForCuda(bench.graph());
  EXPECT_THAT(Counts(bench.graph(), kTokenLosses), ElementsAre(0, 0, 1, 0));
  const MemoryPlan plan = PlanMemory(bench.graph());
  for (const Node& node : bench.graph().nodes()) {
    if (node.function->name() != "token_cross_entropy_fused") continue;
    EXPECT_NE(plan.storage[Index(node.outputs[0])], plan.storage[Index(loss.logits)]);
  }
}

TEST(FuseForCuda, DoesNotFuseTokenLossWithReadStatistics) {
  GraphBench bench;
  const TokenGraph loss = RecordTokenLoss(bench, false);
  bench.graph().MarkOutput(loss.outputs[2]);
  bench.RecordTraining(loss.outputs[0]);
  FuseForCuda(bench.graph());
  EXPECT_THAT(Counts(bench.graph(), kTokenLosses), ElementsAre(1, 1, 0, 0));
  EXPECT_THAT(CheckCudaKernels(bench.graph()),
              HasMessage(HasSubstr("'token_cross_entropy', 'token_cross_entropy_gradient'")));
}

// What the gradient starts from is made after the loss.
TEST(FuseForCuda, DoesNotFuseLateGradient) {
  GraphBench bench;
  const TokenGraph loss = RecordTokenLoss(bench, false);
  const ValueId seed = bench.Apply(std::make_shared<Multiply>(2), {bench.Input("seed", {1})});
  const ValueId labels = bench.graph().nodes().rbegin()[1].inputs[1];
  const ValueId dz =
      bench.Apply(std::make_shared<TokenCrossEntropyGradient>(TokenCrossEntropyOptions{}),
                  {loss.logits, labels, loss.outputs[2], seed});
  bench.graph().MarkOutput(dz);
  FuseForCuda(bench.graph());
  EXPECT_THAT(Counts(bench.graph(), kTokenLosses), ElementsAre(1, 1, 0, 0));
}

class Unknown : public Relu {
 public:
  explicit Unknown(std::string_view name) : name_(name) {}
  [[nodiscard]] std::string_view name() const override { return name_; }

 private:
  std::string_view name_;
};

// Known without CUDA, too.
TEST(HasCudaKernel, EqualsTable) {
  EXPECT_TRUE(HasCudaKernel("linear"));
  EXPECT_TRUE(HasCudaKernel("token_cross_entropy_fused"));  // which the CPU has not
  EXPECT_FALSE(HasCudaKernel("unheard_of"));
}

TEST(CheckCudaKernels, NamesEveryFunctionWithoutKernel) {
  Graph graph;
  ValueId x = graph.AddInput("x", {{2}, DType::kF32});
  for (const char* name : {"swish", "relu", "erf", "swish"}) {
    x = graph.Apply(std::make_shared<Unknown>(name), {x}).value()[0];
  }
  EXPECT_THAT(CheckCudaKernels(graph),
              IsError(ErrorKind::kConfig, "no kernel for the GPU: 'erf', 'swish'"));
}

}  // namespace
}  // namespace gaccd
