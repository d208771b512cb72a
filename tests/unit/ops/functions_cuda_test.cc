// Every function through its GPU kernel against its CPU kernel, in graphs that are recorded once:
// f32 and bf16, fused and not, first and later micro-steps.

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/autograd/passes.h"
#include "daemon/device/cuda/cuda_graph.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/layout/embedding.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/multiply.h"
#include "daemon/ops/product/linear.h"
#include "daemon/replica/model.h"
#include "tests/support/gpu_bench.h"
#include "tests/support/graph_cases.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using Size = CaseSize;

// Near the corner of ReLU there are no finite differences.
const GraphCase kReluWithoutBias[] = {
    {"relu_without_bias",
     [](GraphBench& bench, const Size& s) {
       const auto linear = std::make_shared<Linear>();
       const ValueId w = bench.Parameter("w", {s.in, s.in}, 0.5);
       const ValueId v = bench.Parameter("v", {s.out, s.in}, 0.5);
       const ValueId h = bench.Apply(linear, {bench.Input("x", {s.rows, s.in}), w});
       const ValueId y = bench.Apply(linear, {bench.Apply(std::make_shared<Relu>(), {h}), v});
       const ValueId t = bench.Input("targets", {s.rows, s.out});
       return bench.Apply(std::make_shared<MeanSquaredError>(), {y, t});
     }},
    {"relu_with_two_readers", [](GraphBench& bench, const Size& s) {
       const Shape shape = {s.rows, s.in};
       const ValueId y = bench.Apply(std::make_shared<Relu>(), {bench.Parameter("a", shape)});
       const ValueId z = bench.Apply(std::make_shared<Add>(), {y, bench.Parameter("b", shape)});
       const ValueId sum =
           bench.Apply(std::make_shared<Add>(), {y, bench.Apply(std::make_shared<Relu>(), {z})});
       const ValueId t = bench.Input("targets", shape);
       return bench.Apply(std::make_shared<MeanSquaredError>(), {sum, t});
     }}};

const Size kFunctionSizes[] = {{1, 1, 2}, {3, 17, 5}, {33, 31, 10}, {16, 32, 16}, {70, 33, 1030}};

class FunctionsCuda : public testing::TestWithParam<std::tuple<GraphCase, Size, bool>> {
 protected:
  void SetUp() override {
    const auto& [test_case, size, fuse] = GetParam();
    host_.PrepareTraining(test_case.record(host_, size));
    ASSERT_FALSE(HasFatalFailure());
  }
  GraphBench host_;
};

TEST_P(FunctionsCuda, EqualsCpu) {
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
TEST_P(FunctionsCuda, ReplaysBitForBit) {
  GpuBench gpu(host_, {.fuse = std::get<2>(GetParam())});
  ASSERT_FALSE(HasFatalFailure());
  gpu.Run(true);
  gpu.Run(false);
  const std::vector<float> expected = gpu.gradients();
  const double loss = gpu.Output<double>(host_.objective_id());
  auto first =
      ValueOrThrow(CudaGraph::Capture(gpu.context().compute(), [&] { return gpu.Enqueue(true); }));
  auto later =
      ValueOrThrow(CudaGraph::Capture(gpu.context().compute(), [&] { return gpu.Enqueue(false); }));
  for (int i = 0; i < 2; ++i) {
    EXPECT_OK(first.Launch(gpu.context().compute()));
    EXPECT_OK(later.Launch(gpu.context().compute()));
    EXPECT_EQ(gpu.gradients(), expected);
    EXPECT_EQ(gpu.Output<double>(host_.objective_id()), loss);
  }
}

std::string TestName(const testing::TestParamInfo<std::tuple<GraphCase, Size, bool>>& info) {
  const auto& [test_case, size, fuse] = info.param;
  return StrCat(test_case.name, "_", size.rows, "x", size.in, "x", size.out,
                fuse ? "_fused" : "_single");
}

INSTANTIATE_TEST_SUITE_P(ReluWithoutBias, FunctionsCuda,
                         testing::Combine(testing::ValuesIn(kReluWithoutBias),
                                          testing::ValuesIn(kFunctionSizes), testing::Bool()),
                         TestName);

INSTANTIATE_TEST_SUITE_P(Layers, FunctionsCuda,
                         testing::Combine(testing::ValuesIn(LayerCases().begin(),
                                                            LayerCases().end()),
                                          testing::ValuesIn(kFunctionSizes), testing::Bool()),
                         TestName);

const Size kSequenceSizes[] = {{2, 1, 2}, {3, 17, 5}, {70, 33, 40}};

INSTANTIATE_TEST_SUITE_P(Sequences, FunctionsCuda,
                         testing::Combine(testing::ValuesIn(SequenceCases().begin(),
                                                            SequenceCases().end()),
                                          testing::ValuesIn(kSequenceSizes), testing::Values(true)),
                         TestName);

INSTANTIATE_TEST_SUITE_P(Shapes, FunctionsCuda,
                         testing::Combine(testing::ValuesIn(ShapeCases().begin(),
                                                            ShapeCases().end()),
                                          testing::ValuesIn(kSequenceSizes), testing::Values(true)),
                         TestName);

INSTANTIATE_TEST_SUITE_P(
    Images, FunctionsCuda,
    testing::Combine(testing::ValuesIn(ImageCases().begin(), ImageCases().end()),
                     testing::Values(Size{2, 3, 4}, Size{5, 20, 17}), testing::Values(true)),
    TestName);

INSTANTIATE_TEST_SUITE_P(
    NormsAndRelu, FunctionsCuda,
    testing::Combine(testing::ValuesIn(NormReluCases().begin(), NormReluCases().end()),
                     testing::Values(Size{2, 3, 4}, Size{5, 20, 17}), testing::Bool()),
    TestName);

// So many rows that their sums are taken in several parts.
TEST(SequencesCuda, NormsOfManyRows) {
  std::vector<GraphCase> cases(SequenceCases().begin(), SequenceCases().end());
  cases.insert(cases.end(), ImageCases().begin(), ImageCases().end());
  cases.insert(cases.end(), NormReluCases().begin(), NormReluCases().end());
  for (const GraphCase& test_case : cases) {
    const std::string_view name = test_case.name;
    if (name != "layer_norm" && name != "rms_norm" && !name.starts_with("batch_norm")) continue;
    SCOPED_TRACE(name);
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
// Rows that are no multiple of vectors, and rows that are.
TEST(SequencesCuda, IsNearCpuIn16Bits) {
  std::vector<GraphCase> cases(SequenceCases().begin(), SequenceCases().end());
  cases.insert(cases.end(), ImageCases().begin(), ImageCases().end());
  cases.insert(cases.end(), ShapeCases().begin(), ShapeCases().end());
  for (const GraphCase& test_case : cases) {
    for (const std::int64_t in : {31, 32}) {
      GraphBench host;
      host.PrepareTraining(test_case.record(host, {33, in, 10}));
      host.Run();
      for (const DType type : {DType::kBF16, DType::kFP16}) {
        SCOPED_TRACE(StrCat(test_case.name, " of ", in, " in ", Name(type)));
        const double rounding = type == DType::kBF16 ? 1 : 1.0 / 8;
        GraphBench half;
        half.RecordTraining(test_case.record(half, {33, in, 10, type}));
        Simplify(half.graph());
        GpuBench gpu(half, {.copy = type});
        gpu.Run();
        EXPECT_NEAR(gpu.Output<double>(half.objective_id()) / host.objective(), 1, 1e-2 * rounding);
        EXPECT_LT(gpu.ErrorOfGradients(host), 2e-2 * rounding);
      }
    }
  }
}

TEST(MultiplyCuda, InDouble) {
  const auto context = MakeTestContext();
  ASSERT_NE(context, nullptr);
  const GpuArray<double> x(std::vector<double>{1.25, -3, 1e300});
  const GpuArray<double> y(3);
  const ValueSpec spec{{3}, DType::kF64};
  const auto kernel =
      ValueOrThrow(MakeCudaKernels(*context)->Make({Multiply(0.1), {&spec, 1}, {&spec, 1}, {}}));
  void* const in = x.data();
  void* const out = y.data();
  kernel->Bind({{&in, 1}, {&out, 1}});
  EXPECT_OK(kernel->Run({}));
  EXPECT_EQ(y.Values(), (std::vector<double>{0.1 * 1.25, 0.1 * -3, 0.1 * 1e300}));
}

// A row that is added to all: its gradient is one sum for each column. In one chain of f32 it would
// lose four digits over so many rows.
TEST(PositionsCuda, SumsGradientOfOneRowInParts) {
  constexpr std::int64_t kRows = 1 << 15;
  constexpr std::int64_t kColumns = 3;
  const auto context = MakeTestContext();
  ASSERT_NE(context, nullptr);
  const PositionsGradient function(/*length=*/1, /*rows=*/2);
  const std::vector<ValueSpec> inputs = {{{kRows, kColumns}, DType::kF32}};
  const std::vector<ValueSpec> outputs = function.Infer(inputs).value();
  const std::vector<const float*> none(inputs.size());
  const auto factory = MakeCudaKernels(*context);
  const auto kernel = ValueOrThrow(factory->Make({function, inputs, outputs, none}));
  const GpuArray<float> dy(std::vector<float>(kRows * kColumns, 0.1F));
  const GpuArray<float> table(std::vector<float>(2 * kColumns, 1e9F));
  const GpuArray<char> scratch(static_cast<std::size_t>(kernel->scratch_bytes()) + 1);
  const std::vector<void*> in = {dy.data()};
  const std::vector<void*> out = {table.data()};
  kernel->Bind({in, out, scratch.data()});
  const double once = kRows * static_cast<double>(0.1F);
  for (const int times : {1, 2}) {
    EXPECT_OK(kernel->Run(times == 1 ? OutputMask() : OutputMask().set(0)));
    const std::vector<float> found = table.Values();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double expected = i < kColumns ? times * once : 0;
      EXPECT_NEAR(found[i], expected, 4e-6 * once) << i;
    }
  }
}

// A GPT with an odd vocabulary trains to the same with rows that have a stride as without, but for
// the order of the sums in the loss.
TEST(PadRowsCuda, GptWithOddVocabulary) {
  const GptSpec gpt{.vocabulary = 1030, .context = 5, .layers = 1, .heads = 2, .width = 16};
  const Model model =
      Model::MakeWithoutData({.loss = SoftmaxCrossEntropySpec{}, .architecture = gpt}).value();
  const TrainingGraph training = model.RecordTraining({3}, Precision::kBF16).value();
  const auto parameters = RandomValues(1, static_cast<std::size_t>(model.layout().size()), 0.3);
  std::vector<std::vector<float>> gradients;
  std::vector<double> losses;
  for (const bool dense : {false, true}) {
    GpuBench gpu(training.graph, model.layout(), parameters,
                 {.copy = DType::kBF16, .dense = dense});
    ASSERT_FALSE(testing::Test::HasFatalFailure());
    std::int64_t strides = 0;
    for (std::size_t v = 0; v < gpu.graph().values().size(); ++v) {
      const Value& value = gpu.graph().values()[v];
      if (value.spec.row_stride == 1088) ++strides;
      if (value.kind != ValueKind::kInput) continue;
      const auto id = static_cast<ValueId>(v);
      if (id == training.weight) {
        gpu.BindInput(id, std::span(&GraphBench::kWeight, 1));
        continue;
      }
      std::vector<std::int32_t> ids;
      for (std::int32_t i = 0; i < Elements(value.spec.shape); ++i)
        ids.push_back((i * i + 3) % 1030);
      gpu.BindInput(id, std::span<const std::int32_t>(ids));
    }
    EXPECT_EQ(strides, dense ? 0 : 2);
    for (const bool first : {true, false}) gpu.Run(first);
    gradients.push_back(gpu.written_gradients());
    losses.push_back(gpu.Output<double>(training.loss_sum));
  }
  EXPECT_GT(losses[1], 0);
  EXPECT_NEAR(losses[0] / losses[1], 1, 1e-6);
  EXPECT_LT(RelativeError(gradients[0], gradients[1]), 1e-4);
}

// Only kernels that say so are made for rows with a stride.
TEST(CudaKernels, RefusesUnsupportedStride) {
  const auto context = MakeTestContext();
  ASSERT_NE(context, nullptr);
  const auto kernels = MakeCudaKernels(*context);
  const ValueSpec dense{{2, 6}, DType::kF32};
  const ValueSpec spread{{2, 6}, DType::kF32, 8};
  const float* const none = nullptr;
  const auto refused = HasMessage("'relu': its kernel does not take these strides of rows");
  EXPECT_THAT(kernels->Make({Relu(), {&spread, 1}, {&dense, 1}, {&none, 1}}), refused);
  EXPECT_THAT(kernels->Make({Relu(), {&dense, 1}, {&spread, 1}, {&none, 1}}), refused);
  EXPECT_TRUE(kernels->Make({Relu(), {&dense, 1}, {&dense, 1}, {&none, 1}}).ok());
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

TEST(CudaKernels, RefusesFunctionWithoutKernelByName) {
  const auto context = MakeTestContext();
  ASSERT_NE(context, nullptr);
  const auto kernels = MakeCudaKernels(*context);
  const ValueSpec spec{{2, 2}, DType::kF32};
  const float* const none = nullptr;
  const auto kernel = kernels->Make({Named("swish"), {&spec, 1}, {&spec, 1}, {&none, 1}});
  EXPECT_THAT(kernel, IsError(ErrorKind::kConfig, "'swish' has no kernel for the GPU"));
}

}  // namespace
}  // namespace gaccd
