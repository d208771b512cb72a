// Every function through its GPU kernel against its CPU kernel, in graphs that are recorded once:
// f32 and bf16, fused and not, first and later micro-steps; and gradients by finite differences on
// the GPU alone.
#include <algorithm>
#include <cmath>
#include <functional>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/autograd/simplify.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/embedding.h"
#include "daemon/ops/flatten.h"
#include "daemon/ops/linear.h"
#include "daemon/ops/mean_squared_error.h"
#include "daemon/ops/multiply.h"
#include "daemon/ops/relu.h"
#include "daemon/ops/softmax_cross_entropy.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/engine/sequence_cases.h"
#include "tests/unit/ops/gpu_bench.h"

namespace gaccd {
namespace {

using Size = CaseSize;

ValueId LinearOf(GraphBench& bench, ValueId x, const std::string& name, std::int64_t in,
                 std::int64_t out, bool bias = true) {
  const double limit = 1 / std::sqrt(static_cast<double>(in));
  std::vector<ValueId> inputs = {x, bench.Parameter(name + ".w", {out, in}, limit)};
  if (bias) inputs.push_back(bench.Parameter(name + ".b", {out}));
  return bench.Apply(std::make_shared<Linear>(), std::move(inputs));
}
ValueId ReluOf(GraphBench& bench, ValueId x) { return bench.Apply(std::make_shared<Relu>(), {x}); }
ValueId Distance(GraphBench& bench, ValueId y) {
  const Shape shape = bench.graph().value(y).spec.shape;
  return bench.Apply(std::make_shared<MeanSquaredError>(), {y, bench.Input("targets", shape)});
}
ValueId CrossEntropyOf(GraphBench& bench, ValueId z) {
  const Shape shape = bench.graph().value(z).spec.shape;
  return bench.Apply(std::make_shared<SoftmaxCrossEntropy>(),
                     {z, bench.Labels(shape[0], shape[1])});
}

const GraphCase kCases[] = {
    {"two_layers_cross_entropy",
     [](GraphBench& bench, const Size& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId h = ReluOf(bench, LinearOf(bench, x, "fc1", s.in, s.in));
       return CrossEntropyOf(bench, LinearOf(bench, h, "fc2", s.in, s.out));
     }},
    {"transposed_weights_mean_squared_error",
     [](GraphBench& bench, const Size& s) {
       const auto linear = std::make_shared<Linear>(false, WeightOrder::kInOut);
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const double limit = 1 / std::sqrt(static_cast<double>(s.in));
       const ValueId w = bench.Parameter("w", {s.in, s.in}, limit);
       const ValueId v = bench.Parameter("v", {s.in, s.out}, limit);
       const ValueId h = bench.Apply(linear, {x, w, bench.Parameter("fc1.b", {s.in})});
       return Distance(bench, bench.Apply(linear, {ReluOf(bench, h), v}));
     }},
    {"without_bias_mean_squared_error",
     [](GraphBench& bench, const Size& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId h = ReluOf(bench, LinearOf(bench, x, "fc1", s.in, s.in, false));
       return Distance(bench, LinearOf(bench, h, "fc2", s.in, s.out, false));
     }},
    {"residual",  // a value with two users: add, and a relu that cannot be folded
     [](GraphBench& bench, const Size& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId y = LinearOf(bench, x, "fc1", s.in, s.in);
       const ValueId r = bench.Apply(std::make_shared<Add>(), {ReluOf(bench, y), y});
       return CrossEntropyOf(bench, LinearOf(bench, r, "fc2", s.in, s.out));
     }},
    {"parameter_used_twice",  // one node overwrites both gradients, one adds
     [](GraphBench& bench, const Size& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId w = bench.Parameter("w", {s.in, s.in}, 1 / static_cast<double>(s.in));
       const ValueId b = bench.Parameter("b", {s.in});
       const ValueId y = bench.Apply(std::make_shared<Linear>(), {x, w, b});
       return Distance(bench, bench.Apply(std::make_shared<Linear>(), {y, w, b}));
     }},
    {"tied_weight",  // the second node adds to the weight's gradient and overwrites the bias's
     [](GraphBench& bench, const Size& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId w = bench.Parameter("w", {s.in, s.in}, 1 / static_cast<double>(s.in));
       const auto layer = [&](ValueId in, const char* bias) {
         return bench.Apply(std::make_shared<Linear>(), {in, w, bench.Parameter(bias, {s.in})});
       };
       return Distance(bench, layer(layer(x, "b1"), "b2"));
     }},
    {"tied_bias",  // and the other way round
     [](GraphBench& bench, const Size& s) {
       const ValueId x = bench.Input("x", {s.rows, s.in});
       const ValueId b = bench.Parameter("b", {s.in});
       const auto layer = [&](ValueId in, const char* name) {
         const ValueId w = bench.Parameter(name, {s.in, s.in}, 1 / static_cast<double>(s.in));
         return bench.Apply(std::make_shared<Linear>(), {in, w, b});
       };
       return Distance(bench, layer(layer(x, "w1"), "w2"));
     }},
    {"add_of_parameters",  // accumulate
     [](GraphBench& bench, const Size& s) {
       const ValueId a = bench.Parameter("a", {s.rows, s.in});
       const ValueId b = bench.Parameter("b", {s.rows, s.in});
       return Distance(bench, bench.Apply(std::make_shared<Add>(), {a, b}));
     }},
    {"flatten",
     [](GraphBench& bench, const Size& s) {
       const ValueId x = bench.Parameter("x", {s.rows, s.in, 3});
       const ValueId y = bench.Apply(std::make_shared<Flatten>(), {x});
       return Distance(bench, LinearOf(bench, y, "fc", s.in * 3, s.out));
     }},
};

const Size kSizes[] = {{1, 1, 2}, {3, 17, 5}, {33, 31, 10}, {16, 32, 16}, {70, 33, 1030}};

class FunctionsCuda : public testing::TestWithParam<std::tuple<GraphCase, Size, bool>> {
 protected:
  void SetUp() override {
    const auto& [test_case, size, fuse] = GetParam();
    host_.PrepareTraining(test_case.record(host_, size));
    ASSERT_FALSE(HasFatalFailure());
  }
  GraphBench host_;
};

TEST_P(FunctionsCuda, EqualsTheCpu) {
  GpuBench gpu(host_, {.fuse = std::get<2>(GetParam())});
  ASSERT_FALSE(HasFatalFailure());
  for (const bool first : {true, false, false}) {
    host_.Run(first);
    gpu.Run(first);
    EXPECT_NEAR(gpu.Output<double>(host_.objective_id()) / host_.objective(), 1, 1e-6);
    EXPECT_LT(gpu.ErrorOfGradients(host_), 3e-6);
  }
}

// The same bits from run to run, and when the micro-step is replayed as a CUDA graph.
TEST_P(FunctionsCuda, ReplaysWithTheSameBits) {
  GpuBench gpu(host_, {.fuse = std::get<2>(GetParam())});
  ASSERT_FALSE(HasFatalFailure());
  gpu.Run(true);
  gpu.Run(false);
  const std::vector<float> expected = gpu.gradients();
  const double loss = gpu.Output<double>(host_.objective_id());
  auto first = CudaGraph::Capture(gpu.context().compute(), [&] { return gpu.Enqueue(true); });
  ASSERT_TRUE(first.ok()) << first.status().message();
  auto later = CudaGraph::Capture(gpu.context().compute(), [&] { return gpu.Enqueue(false); });
  ASSERT_TRUE(later.ok()) << later.status().message();
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(first->Launch(gpu.context().compute()));
    EXPECT_OK(later->Launch(gpu.context().compute()));
    EXPECT_EQ(gpu.gradients(), expected);
    EXPECT_EQ(gpu.Output<double>(host_.objective_id()), loss);
  }
}

std::string TestName(const testing::TestParamInfo<std::tuple<GraphCase, Size, bool>>& info) {
  const auto& [test_case, size, fuse] = info.param;
  return StrCat(test_case.name, "_", size.rows, "x", size.in, "x", size.out,
                fuse ? "_fused" : "_single");
}

INSTANTIATE_TEST_SUITE_P(All, FunctionsCuda,
                         testing::Combine(testing::ValuesIn(kCases), testing::ValuesIn(kSizes),
                                          testing::Bool()),
                         TestName);

const Size kSequenceSizes[] = {{2, 1, 2}, {3, 17, 5}, {70, 33, 40}};

INSTANTIATE_TEST_SUITE_P(Sequences, FunctionsCuda,
                         testing::Combine(testing::ValuesIn(SequenceCases().begin(),
                                                            SequenceCases().end()),
                                          testing::ValuesIn(kSequenceSizes), testing::Values(true)),
                         TestName);

// So many rows that their sums are taken in several parts.
TEST(SequencesCuda, LayerNormOfManyRows) {
  for (const GraphCase& test_case : SequenceCases()) {
    if (std::string_view(test_case.name) != "layer_norm") continue;
    GraphBench host;
    host.PrepareTraining(test_case.record(host, {200, 35, 1}));
    GpuBench gpu(host, {});
    for (const bool first : {true, false}) {
      host.Run(first);
      gpu.Run(first);
      EXPECT_LT(gpu.ErrorOfGradients(host), 3e-6);
    }
  }
}

// The same graphs in 16 bits: off by the rounding of what lies between the functions.
TEST(SequencesCuda, In16BitsTheyAreNearTheCpu) {
  for (const GraphCase& test_case : SequenceCases()) {
    GraphBench host;
    host.PrepareTraining(test_case.record(host, {33, 31, 10}));
    host.Run();
    for (const DType type : {DType::kBF16, DType::kFP16}) {
      SCOPED_TRACE(StrCat(test_case.name, " in ", Name(type)));
      const double rounding = type == DType::kBF16 ? 1 : 1.0 / 8;
      GraphBench half;
      half.RecordTraining(test_case.record(half, {33, 31, 10, type}));
      Simplify(half.graph());
      GpuBench gpu(half, {.copy = type});
      gpu.Run();
      EXPECT_NEAR(gpu.Output<double>(half.objective_id()) / host.objective(), 1, 1e-2 * rounding);
      EXPECT_LT(gpu.ErrorOfGradients(host), 2e-2 * rounding);
    }
  }
}

TEST(MultiplyCuda, InDouble) {
  const auto context = MakeTestContext();
  ASSERT_NE(context, nullptr);
  const GpuArray<double> x(std::vector<double>{1.25, -3, 1e300});
  const GpuArray<double> y(3);
  const ValueSpec spec{{3}, DType::kF64};
  const auto kernel = MakeCudaKernels(*context)->Make({Multiply(0.1), {&spec, 1}, {&spec, 1}, {}});
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  void* const in = x.data();
  void* const out = y.data();
  (*kernel)->Bind({{&in, 1}, {&out, 1}});
  EXPECT_OK((*kernel)->Run({}));
  EXPECT_EQ(y.Values(), (std::vector<double>{0.1 * 1.25, 0.1 * -3, 0.1 * 1e300}));
}

// Central differences of the loss that the GPU computes, against the gradient that it computes.
TEST(GradientsCuda, EqualFiniteDifferences) {
  constexpr float kStep = 1.0F / 64;
  for (const std::size_t test_case : {0, 1, 2, 3}) {
    GraphBench host;
    host.PrepareTraining(kCases[test_case].record(host, {4, 5, 3}));
    GpuBench gpu(host, {});
    std::vector<float> parameters(host.parameters().begin(), host.parameters().end());
    // Biases of +-3 hold every unit clear of the corner of ReLU.
    const FlatEntry* bias = host.layout().Find("fc1.b");
    for (std::int64_t i = 0; bias != nullptr && i < bias->elements; ++i) {
      parameters[static_cast<std::size_t>(bias->offset + i)] = i % 2 == 0 ? 3.0F : -3.0F;
    }
    const auto loss_at = [&](std::size_t element, float value) {
      std::swap(parameters[element], value);
      gpu.SetParameters(parameters);
      std::swap(parameters[element], value);
      gpu.Run();
      return gpu.Output<double>(host.objective_id()) * GraphBench::kWeight;
    };
    gpu.SetParameters(parameters);
    gpu.Run();
    const std::vector<float> gradient = gpu.gradients();
    for (const FlatEntry& entry : host.layout().entries()) {
      for (std::int64_t i = 0; i < entry.elements; ++i) {
        const auto element = static_cast<std::size_t>(entry.offset + i);
        const float above = parameters[element] + kStep;
        const float below = parameters[element] - kStep;
        const double slope = (loss_at(element, above) - loss_at(element, below)) /
                             (static_cast<double>(above) - static_cast<double>(below));
        ASSERT_NEAR(static_cast<double>(gradient[element]), slope, 3e-4 + 1e-3 * std::abs(slope))
            << kCases[test_case].name << " " << entry.name << " " << i;
      }
    }
  }
}

// A row that is added to all: its gradient is one sum for each column. In one chain of f32 it would
// lose four digits over so many rows.
TEST(PositionsCuda, TheGradientOfOneRowIsSummedByParts) {
  constexpr std::int64_t kRows = 1 << 15;
  constexpr std::int64_t kColumns = 3;
  const auto context = MakeTestContext();
  ASSERT_NE(context, nullptr);
  const PositionsGradient function(/*length=*/1, /*rows=*/2);
  const std::vector<ValueSpec> inputs = {{{kRows, kColumns}, DType::kF32}};
  const std::vector<ValueSpec> outputs = function.Infer(inputs).value();
  const std::vector<const float*> none(inputs.size());
  const auto factory = MakeCudaKernels(*context);
  const auto kernel = factory->Make({function, inputs, outputs, none});
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  const GpuArray<float> dy(std::vector<float>(kRows * kColumns, 0.1F));
  const GpuArray<float> table(std::vector<float>(2 * kColumns, 1e9F));
  const GpuArray<char> scratch(static_cast<std::size_t>((*kernel)->scratch_bytes()) + 1);
  const std::vector<void*> in = {dy.data()};
  const std::vector<void*> out = {table.data()};
  (*kernel)->Bind({in, out, scratch.data()});
  const double once = kRows * static_cast<double>(0.1F);
  for (const int times : {1, 2}) {
    EXPECT_OK((*kernel)->Run(times == 1 ? OutputMask() : OutputMask().set(0)));
    const std::vector<float> found = table.Values();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double expected = i < kColumns ? times * once : 0;
      EXPECT_NEAR(found[i], expected, 4e-6 * once) << i;
    }
  }
}

// A stand-in for a function of any name, to ask the factory for.
class Named : public Function {
 public:
  explicit Named(std::string_view name) : name_(name) {}
  [[nodiscard]] std::string_view name() const override { return name_; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override {
    return std::vector<ValueSpec>(inputs.begin(), inputs.end());
  }

 private:
  std::string_view name_;
};

TEST(CudaKernels, AFunctionWithoutOneIsRefusedByName) {
  const auto context = MakeTestContext();
  ASSERT_NE(context, nullptr);
  const auto kernels = MakeCudaKernels(*context);
  const ValueSpec spec{{2, 2}, DType::kF32};
  const float* const none = nullptr;
  const auto kernel = kernels->Make({Named("swish"), {&spec, 1}, {&spec, 1}, {&none, 1}});
  ASSERT_FALSE(kernel.ok());
  EXPECT_THAT(kernel, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(kernel, HasMessage("'swish' has no kernel for the GPU"));
}

}  // namespace
}  // namespace gaccd
