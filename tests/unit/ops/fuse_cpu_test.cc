// FuseRoundedForCpu(): the same results as by separate functions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/norm/layer_norm.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/product/linear.h"
#include "tests/sanitized.h"
#include "tests/support/graph_bench.h"

namespace gaccd {
namespace {

enum class Sums { kF32, kBF16, kF64 };

std::ptrdiff_t Count(GraphBench& bench, std::string_view name) {
  return std::ranges::count_if(bench.graph().nodes(),
                               [name](const Node& node) { return node.function->name() == name; });
}

// The MLP of a block between two norms: s = x + r, z = fc2(gelu(fc1(norm(s)))) + s, norm(z). Rows
// are computed in blocks of 32, and the gradients of the weights from 256 rows each.
struct Block {
  std::int64_t rows = 0;
  ActivationKind kind = ActivationKind::kGelu;
  WeightOrder order = WeightOrder::kOutIn;

  static constexpr std::int64_t kWidth = 64;
  static constexpr std::int64_t kHidden = 1040;

  [[nodiscard]] ValueId Product(GraphBench& bench, ValueId x, const std::string& name,
                                std::int64_t out) const {
    const std::int64_t in = bench.graph().value(x).spec.shape[1];
    const Shape weight = order == WeightOrder::kOutIn ? Shape{out, in} : Shape{in, out};
    return bench.Apply(std::make_shared<Linear>(false, order),
                       {x, bench.Parameter(name + ".w", weight, 2 / std::sqrt(in)),
                        bench.Parameter(name + ".b", {out})});
  }
  static ValueId Norm(GraphBench& bench, ValueId x, const std::string& name) {
    return bench.Apply(
        std::make_shared<LayerNorm>(),
        {x, bench.Parameter(name + ".gamma", {kWidth}), bench.Parameter(name + ".beta", {kWidth})});
  }
  void Record(GraphBench& bench, const GraphBench::Options& options) const {
    const auto add = std::make_shared<Add>();
    const ValueId r = Product(bench, bench.Input("r", {rows, kWidth}), "r", kWidth);
    const ValueId s = bench.Apply(add, {bench.Parameter("x", {rows, kWidth}), r});
    const ValueId pre = Product(bench, Norm(bench, s, "norm1"), "fc1", kHidden);
    const ValueId y = bench.Apply(std::make_shared<Activation>(kind), {pre});
    const ValueId z = bench.Apply(add, {Product(bench, y, "fc2", kWidth), s});
    const ValueId t = bench.Input("t", {rows, kWidth});
    bench.PrepareTraining(
        bench.Apply(std::make_shared<MeanSquaredError>(), {Norm(bench, z, "norm2"), t}), options);
  }
};

class FuseRoundedForCpuTest
    : public testing::TestWithParam<std::tuple<std::int64_t, WeightOrder, Sums>> {};

TEST_P(FuseRoundedForCpuTest, EqualsSeparateFunctions) {
  const auto [rows, order, sums] = GetParam();
  if (sums == Sums::kBF16 && DetectCpuBf16() == CpuBf16::kNone) {
    GTEST_SKIP() << "this CPU has " << Name(DetectCpuBf16());
  }
  for (const ActivationKind kind : {ActivationKind::kGelu, ActivationKind::kGeluTanh}) {
    const Block block{rows, kind, order};
    const auto options = [&](bool fuse) {
      return GraphBench::Options{
          .fuse = fuse, .bf16 = sums == Sums::kBF16, .f64_sums = sums == Sums::kF64};
    };
    GraphBench alone;
    block.Record(alone, options(false));
    GraphBench fused;
    block.Record(fused, options(true));
    EXPECT_EQ(Count(fused, "linear_gelu"), 1);
    EXPECT_EQ(Count(fused, "linear_input_gradient_times"), 1);
    EXPECT_EQ(Count(fused, "linear_weight_bias_gradient"), 3);
    EXPECT_EQ(Count(fused, "layer_norm_gradient_add"), 1);
    EXPECT_EQ(Count(fused, "bias_gradient"), 0);
    EXPECT_EQ(Count(alone, "add") - Count(fused, "add"), 1);
    for (const bool first : {true, false}) {
      alone.Run(first);
      fused.Run(first);
      // A bf16 value may be rounded to the neighbour.
      const double tolerance = sums == Sums::kF64 ? 0 : sums == Sums::kF32 ? 2e-6 : 2e-3;
      EXPECT_NEAR(fused.objective(), alone.objective(), tolerance * alone.objective());
      for (const FlatEntry& entry : alone.layout().entries()) {
        const auto expected = alone.gradient(entry.name);
        const auto found = fused.gradient(entry.name);
        double norm = 0;
        double distance = 0;
        for (std::size_t i = 0; i < expected.size(); ++i) {
          norm += std::pow(expected[i], 2);
          distance += std::pow(expected[i] - found[i], 2);
        }
        ASSERT_GT(norm, 0) << entry.name;
        EXPECT_LE(std::sqrt(distance / norm), tolerance) << entry.name << ", first " << first;
      }
    }
  }
}

std::string FusedCaseName(const testing::TestParamInfo<FuseRoundedForCpuTest::ParamType>& info) {
  const auto [rows, order, sums] = info.param;
  const char* const name = sums == Sums::kF32 ? "f32" : sums == Sums::kBF16 ? "bf16" : "f64";
  return StrCat(rows, order == WeightOrder::kOutIn ? "_out_in_" : "_in_out_", name);
}

// Rows: one block, blocks and a rest, more than the gradients of the weights take at once.
INSTANTIATE_TEST_SUITE_P(
    Rows, FuseRoundedForCpuTest,
    testing::Combine(testing::Values<std::int64_t>(1, 32, tests::kSanitized ? 75 : 300),
                     testing::Values(WeightOrder::kOutIn, WeightOrder::kInOut),
                     testing::Values(Sums::kF32, Sums::kBF16, Sums::kF64)),
    FusedCaseName);

// The caller reads dy, or a node of it.
TEST(FuseLinearGeluSlopeTest, KeepsGradientWithOtherReaders) {
  enum class Also { kNobody, kANode, kTheCaller };
  for (const Also also : {Also::kNobody, Also::kANode, Also::kTheCaller}) {
    Graph graph;
    const auto apply = [&](auto function, std::vector<ValueId> inputs) {
      return graph.Apply(std::make_shared<decltype(function)>(function), std::move(inputs))
          .value()[0];
    };
    const ValueId x = graph.AddInput("x", {{6, 4}, DType::kF32});
    const ValueId dz = graph.AddInput("dz", {{6, 3}, DType::kF32});
    const ValueId pre = apply(Linear(), {x, graph.AddParameter("w", {5, 4}, 0)});
    graph.MarkOutput(apply(Activation(ActivationKind::kGelu), {pre}));
    const ValueId dy = apply(LinearInputGradient(), {dz, graph.AddParameter("v", {3, 5}, 1)});
    graph.MarkOutput(apply(ActivationGradient(ActivationKind::kGelu), {dy, pre}));
    if (also == Also::kANode) graph.MarkOutput(apply(Relu(), {dy}));
    if (also == Also::kTheCaller) graph.MarkOutput(dy);
    FuseRoundedForCpu(graph);
    EXPECT_EQ(std::ranges::count_if(
                  graph.nodes(), [](const Node& n) { return n.function->name() == "linear_gelu"; }),
              also == Also::kNobody ? 1 : 0);
  }
}

// pre must be computed where anybody else reads it.
TEST(FuseLinearGeluSlopeTest, KeepsValuesWithOtherReaders) {
  enum class Also { kNobody, kReadsPre, kReadsGelu, kIsAParameter };
  for (const Also also : {Also::kNobody, Also::kReadsPre, Also::kReadsGelu, Also::kIsAParameter}) {
    GraphBench bench;
    const Block block{3};
    const ValueId x = bench.Input("x", {3, Block::kWidth});
    const ValueId pre = also == Also::kIsAParameter
                            ? bench.Parameter("pre", {3, Block::kHidden})
                            : block.Product(bench, x, "fc1", Block::kHidden);
    const ValueId y = bench.Apply(std::make_shared<Activation>(ActivationKind::kGelu), {pre});
    ValueId z = block.Product(bench, y, "fc2", Block::kHidden);
    if (also == Also::kReadsPre) z = bench.Apply(std::make_shared<Add>(), {z, pre});
    if (also == Also::kReadsGelu) z = bench.Apply(std::make_shared<Add>(), {z, y});
    bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(),
                                      {z, bench.Input("t", {3, Block::kHidden})}),
                          {.fuse = true});
    const bool fuses = also == Also::kNobody;
    EXPECT_EQ(Count(bench, "linear_gelu"), fuses ? 1 : 0) << static_cast<int>(also);
    EXPECT_EQ(Count(bench, "gelu"), fuses ? 0 : 1) << static_cast<int>(also);
    bench.Run();
  }
}

}  // namespace
}  // namespace gaccd
