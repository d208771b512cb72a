// Graphs whose products are in bf16 on the CPU.
#include "daemon/ops/product/bf16_products.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>

#include "daemon/autograd/add.h"
#include "daemon/autograd/executor.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/product/linear.h"
#include "tests/support/graph_bench.h"
#include "tests/support/model_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// ReLU is folded into the product before it, and of it only rounded values are read.
TEST(RoundProductsToBf16, RoundsEveryOperandOnce) {
  const Model model = MakeMlp({5, 4, 4, 3});
  auto training = ValueOrThrow(model.RecordTraining({2}));
  Graph& graph = training.graph;
  ASSERT_OK(RoundProductsToBf16(graph));
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
TEST(RoundProductsToBf16, ProducerRoundsValue) {
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
  if (DetectCpuBf16() == CpuBf16::kNone) GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  const Model model = MakeMlp({5, 3});
  auto recorded = ValueOrThrow(model.RecordTraining({2}, Precision::kBF16));
  auto context = ValueOrThrow(CpuContext::Create());
  const auto kernels = MakeCpuKernels(*context, {});
  std::vector<float> memory(static_cast<std::size_t>(model.layout().size()));
  EXPECT_THAT(Executor::Prepare(std::move(recorded.graph),
                                {&model.layout(), memory.data(), memory.data()}, *kernels),
              IsError(ErrorKind::kConfig,
                      "'token_cross_entropy' has no kernel for bf16 on the CPU: expected f32"));
}

}  // namespace
}  // namespace gaccd
