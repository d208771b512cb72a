// Functions of images: what golden values and finite differences do not show.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/base/memory.h"
#include "collectives/base/strings.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/image/channels_last.h"
#include "daemon/ops/image/conv2d.h"
#include "daemon/ops/image/pool2d.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/norm/group_norm.h"
#include "daemon/ops/pointwise/combine.h"
#include "daemon/tensor/float_types.h"
#include "tests/support/graph_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr float kNanValue = std::numeric_limits<float>::quiet_NaN();

// A convolution of square images and kernels.
struct ConvCase {
  std::int64_t images, in, out, size, kernel, stride, padding, dilation, groups;
  std::int64_t wider = 0;  // more padding of columns
};

void PrintTo(const ConvCase& c, std::ostream* to) {
  *to << c.images << " x [" << c.in << ", " << c.size << ", " << c.size << "] -> " << c.out
      << ", kernel " << c.kernel << ", stride " << c.stride << ", padding " << c.padding << " + "
      << c.wider << ", dilation " << c.dilation << ", groups " << c.groups;
}

const ConvCase kConvCases[] = {
    // 1x1 with a stride and few channels: github.com/uxlfoundation/oneDNN/issues/6035
    {32, 3, 8, 32, 1, 2, 0, 1, 1},
    {32, 4, 8, 32, 1, 2, 0, 1, 1},
    {5, 8, 8, 15, 1, 2, 0, 1, 1},
    {3, 12, 20, 9, 1, 3, 0, 1, 1},
    {2, 16, 16, 8, 1, 2, 0, 1, 1},
    {2, 12, 8, 7, 1, 2, 0, 1, 4},
    {2, 64, 128, 14, 1, 2, 0, 1, 1},
    {2, 4, 8, 6, 1, 2, 1, 1, 1},
    {2, 4, 8, 6, 1, 2, 0, 1, 1, 1},
    // as in a ResNet
    {2, 3, 64, 30, 7, 2, 3, 1, 1},
    {3, 64, 64, 7, 3, 1, 1, 1, 1},
    {2, 64, 128, 7, 3, 2, 1, 1, 1},
    {2, 17, 33, 9, 3, 1, 1, 1, 1},
    {13, 1, 6, 28, 5, 1, 0, 1, 1},
    // with fewer products: odd sizes, several blocks of tiles, every padding
    {9, 32, 48, 7, 3, 1, 1, 1, 1},
    {20, 16, 32, 8, 3, 1, 0, 1, 1},
    {16, 32, 32, 5, 3, 1, 2, 1, 1},
    {1, 32, 32, 33, 3, 1, 1, 1, 1},
    // in bf16 as products: several blocks of rows, a shorter one at the end
    {1, 64, 64, 17, 3, 1, 1, 1, 1},
    {7, 32, 64, 9, 3, 1, 1, 1, 1},
    {3, 64, 64, 11, 3, 2, 1, 1, 1, 1},
    {3, 64, 64, 10, 3, 2, 2, 2, 1},
    {5, 64, 128, 9, 2, 3, 0, 1, 1},
    // its weight gradient tap by tap: taps without a pixel, several blocks of images
    {3, 128, 128, 4, 3, 1, 1, 1, 1},
    {2, 128, 192, 5, 3, 2, 1, 1, 1, 1},
    {5, 160, 128, 1, 3, 1, 1, 1, 1},
    {131, 128, 128, 1, 2, 1, 1, 1, 1},
    // by channel, in groups, dilated, with padding beyond the kernel
    {2, 24, 24, 10, 3, 1, 1, 1, 24},
    {2, 24, 24, 10, 3, 2, 1, 1, 24},
    {2, 32, 64, 8, 3, 2, 1, 1, 8},
    {2, 16, 16, 12, 3, 1, 2, 2, 1},
    {1, 2, 3, 1, 3, 1, 4, 1, 1},
    {4, 16, 8, 1, 1, 1, 0, 1, 1},
};

enum class Products : std::uint8_t { kF32, kBf16, kF64Sums };

// One convolution in a graph, and the same by loops in f64.
class ConvBench {
 public:
  // computed: the weight is no parameter, but the product of one and 1.
  ConvBench(const ConvCase& c, Products products, bool computed = false) : c_(c) {
    const bool bf16 = products == Products::kBf16;
    const ValueId x = bench.Parameter("x", {c.images, c.size, c.size, c.in});
    ValueId w = bench.Parameter("weight", {c.out, c.in / c.groups, c.kernel, c.kernel});
    const ValueId b = bench.Parameter("bias", {c.out});
    if (computed) {
      w = bench.Apply(std::make_shared<Combine>(CombineKind::kMultiply),
                      {w, bench.Input("one", {1, 1, 1, 1}, {1})});
    }
    if (bf16) {
      for (float& value : bench.parameters()) value = ToFloat(ToBf16(value));
    }
    y_ = bench.Apply(
        std::make_shared<Conv2d>(Conv2dOptions{.stride = {c.stride, c.stride},
                                               .padding = {c.padding, c.padding + c.wider},
                                               .dilation = {c.dilation, c.dilation},
                                               .groups = c.groups}),
        {x, w, b});
    bench.graph().MarkOutput(y_);
    shape = bench.graph().value(y_).spec.shape;
    const ValueId flat = bench.Rows(y_);
    const Shape columns = bench.graph().value(flat).spec.shape;
    const ValueId targets = bench.Input("targets", columns);
    targets_.assign(bench.input(targets).begin(), bench.input(targets).end());
    targets_input_ = targets;
    bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {flat, targets}),
                          {.bf16 = bf16, .f64_sums = products == Products::kF64Sums});
  }

  [[nodiscard]] std::vector<float> y() {
    const auto* values = bench.executor().Output<float>(y_);
    return {values, values + Elements(shape)};
  }

  // Those of the images of `whole` from `first` on.
  void CopyTargets(const ConvBench& whole, std::size_t first) {
    const std::size_t image = targets_.size() / static_cast<std::size_t>(c_.images);
    std::copy_n(whole.targets_.begin() + static_cast<std::ptrdiff_t>(first * image),
                targets_.size(), targets_.begin());
    bench.executor().BindInput(targets_input_, targets_.data());
  }

  // Calls term(place in y, in x, in the weight) for every product.
  template <typename Term>
  void ForTerms(const Term& term) const {
    const std::int64_t in = c_.in / c_.groups;
    const std::int64_t out = c_.out / c_.groups;
    for (std::int64_t i = 0; i < Elements(shape); ++i) {
      const std::int64_t o = i % c_.out;
      const std::int64_t q = i / c_.out % shape[2];
      const std::int64_t p = i / c_.out / shape[2] % shape[1];
      const std::int64_t n = i / c_.out / shape[2] / shape[1];
      for (std::int64_t t = 0; t < in * c_.kernel * c_.kernel; ++t) {
        const std::int64_t h = p * c_.stride - c_.padding + t / c_.kernel % c_.kernel * c_.dilation;
        const std::int64_t w = q * c_.stride - c_.padding - c_.wider + t % c_.kernel * c_.dilation;
        if (h < 0 || h >= c_.size || w < 0 || w >= c_.size) continue;
        const std::int64_t channel = o / out * in + t / (c_.kernel * c_.kernel);
        term(static_cast<std::size_t>(i),
             static_cast<std::size_t>(((n * c_.size + h) * c_.size + w) * c_.in + channel),
             static_cast<std::size_t>(o * in * c_.kernel * c_.kernel + t));
      }
    }
  }

  // Another run without `first` doubles the gradient of the weight.
  void ExpectAddsToGradient(double allowed) {
    const std::vector<float> once(bench.gradient("weight").begin(), bench.gradient("weight").end());
    bench.Run(/*first=*/false);
    std::vector<float> twice;
    for (const float value : once) twice.push_back(2 * value);
    EXPECT_LT(RelativeError(bench.gradient("weight"), twice), allowed);
  }

  // What y is, and what the gradients are for the y that was found. dy is rounded with bf16.
  void Expect(double allowed, bool bf16 = false, double allowed_of_y = 1e-6) {
    const std::span<const float> x = bench.parameter("x");
    const std::span<const float> w = bench.parameter("weight");
    const std::vector<float> found = y();
    std::vector<double> sums(found.size());
    std::vector<float> dy(found.size());
    const double slope = 2 * static_cast<double>(GraphBench::kWeight) /
                         static_cast<double>(found.size() / static_cast<std::size_t>(c_.images));
    for (std::size_t i = 0; i < found.size(); ++i) {
      sums[i] = static_cast<double>(bench.parameter("bias")[i % static_cast<std::size_t>(c_.out)]);
      dy[i] = static_cast<float>(slope * static_cast<double>(found[i] - targets_[i]));
      if (bf16) dy[i] = ToFloat(ToBf16(dy[i]));
    }
    std::vector<double> dx(x.size());
    std::vector<double> dw(w.size());
    ForTerms([&](std::size_t i, std::size_t j, std::size_t k) {
      sums[i] += static_cast<double>(x[j]) * static_cast<double>(w[k]);
      dx[j] += static_cast<double>(dy[i]) * static_cast<double>(w[k]);
      dw[k] += static_cast<double>(dy[i]) * static_cast<double>(x[j]);
    });
    std::vector<double> db(static_cast<std::size_t>(c_.out));
    for (std::size_t i = 0; i < dy.size(); ++i) db[i % db.size()] += static_cast<double>(dy[i]);
    const auto rounded = [](const std::vector<double>& values) {
      return std::vector<float>(values.begin(), values.end());
    };
    EXPECT_LT(RelativeError(found, rounded(sums)), allowed_of_y);
    EXPECT_LT(RelativeError(bench.gradient("x"), rounded(dx)), allowed);
    EXPECT_LT(RelativeError(bench.gradient("weight"), rounded(dw)), allowed);
    EXPECT_LT(RelativeError(bench.gradient("bias"), rounded(db)), allowed);
  }

  GraphBench bench;
  Shape shape;  // of y

 private:
  ConvCase c_;
  ValueId y_ = 0;
  ValueId targets_input_ = 0;
  std::vector<float> targets_;
};

class ConvolutionTest : public testing::TestWithParam<ConvCase> {};
INSTANTIATE_TEST_SUITE_P(All, ConvolutionTest, testing::ValuesIn(kConvCases));

TEST_P(ConvolutionTest, EqualsLoop) {
  for (const bool computed : {false, true}) {
    ConvBench conv(GetParam(), Products::kF32, computed);
    conv.bench.Run();
    conv.Expect(2e-6);
  }
}

// Sums in f32 of more than a few products are off by 3e-8 or more. Gradients differ by the rounding
// of dy.
TEST_P(ConvolutionTest, EqualsLoopWithF64Sums) {
  ConvBench conv(GetParam(), Products::kF64Sums);
  conv.bench.Run();
  conv.Expect(2e-7, /*bf16=*/false, 1e-9);
  conv.ExpectAddsToGradient(1e-7);
}

// Products of rounded values, summed in f32. A dy at a tie of roundings may be rounded otherwise.
TEST_P(ConvolutionTest, EqualsLoopInBf16) {
  if (DetectCpuBf16() == CpuBf16::kNone) GTEST_SKIP() << "this CPU has no products of bf16";
  for (const bool computed : {false, true}) {
    ConvBench conv(GetParam(), Products::kBf16, computed);
    conv.bench.Run();
    conv.Expect(5e-4, /*bf16=*/true);
    conv.ExpectAddsToGradient(1e-6);
  }
}

// Runs a kernel whose inputs are 1, and expects that it writes nothing behind its output and its
// scratch memory.
void ExpectInBounds(const Function& function, const std::vector<ValueSpec>& inputs,
                    const ValueSpec& output, bool f64_sums = false) {
  auto context = CpuContext::Create(f64_sums);
  ASSERT_TRUE(context.ok());
  const std::vector<const float*> parameters(inputs.size(), nullptr);
  auto kernel = MakeCpuKernels(**context, {})->Make({function, inputs, {&output, 1}, parameters});
  ASSERT_TRUE(kernel.ok()) << kernel.status().message();
  constexpr std::size_t kGuard = std::size_t{1} << 20;
  constexpr auto kMark = std::byte{0xa5};
  const auto guarded = [&](std::int64_t bytes) {
    HostBuffer memory =
        *HostBuffer::Allocate(static_cast<std::size_t>(bytes) + kGuard, "guarded memory");
    std::fill_n(memory.data() + bytes, kGuard, kMark);
    return memory;
  };
  std::vector<HostBuffer> memory;
  std::vector<void*> in;
  for (const ValueSpec& input : inputs) {
    memory.push_back(guarded(input.bytes()));
    in.push_back(memory.back().data());
    if (input.dtype == DType::kBF16) {
      std::fill_n(static_cast<Bf16*>(in.back()), Elements(input.shape), ToBf16(1));
    } else {
      std::fill_n(static_cast<float*>(in.back()), Elements(input.shape), 1.0F);
    }
  }
  const HostBuffer written = guarded(output.bytes());
  const HostBuffer scratch = guarded((*kernel)->scratch_bytes());
  void* const out[] = {written.data()};
  (*kernel)->Bind({in, out, scratch.data()});
  EXPECT_TRUE((*kernel)->Run({}).ok());
  const auto marks = [kMark](const std::byte* end) { return std::count(end, end + kGuard, kMark); };
  EXPECT_EQ(marks(written.data() + output.bytes()), static_cast<std::ptrdiff_t>(kGuard));
  EXPECT_EQ(marks(scratch.data() + (*kernel)->scratch_bytes()),
            static_cast<std::ptrdiff_t>(kGuard));
}

// github.com/uxlfoundation/oneDNN/issues/6035: with AVX2 what a kernel of 1 x 1 with a stride reads
// is gathered beyond the scratch memory, if there are few channels.
TEST_P(ConvolutionTest, StaysInBounds) {
  const ConvCase& c = GetParam();
  const Conv2dOptions options{.stride = {c.stride, c.stride},
                              .padding = {c.padding, c.padding + c.wider},
                              .dilation = {c.dilation, c.dilation},
                              .groups = c.groups};
  std::vector<DType> types = {DType::kF32};
  if (DetectCpuBf16() != CpuBf16::kNone) types.push_back(DType::kBF16);
  for (const DType type : types) {
    const ValueSpec x{{c.images, c.size, c.size, c.in}, type};
    const ValueSpec dx{x.shape, DType::kF32};
    const ValueSpec w{{c.out, c.in / c.groups, c.kernel, c.kernel}, DType::kF32};
    const Conv2d forward(options, LinearSums::kF32);
    const ValueSpec y = (*forward.Infer(std::vector<ValueSpec>{x, w}))[0];
    const ValueSpec dy{y.shape, type};
    ExpectInBounds(forward, {x, w}, y);
    ExpectInBounds(Conv2dInputGradient(options, {c.size, c.size}, LinearSums::kF32), {dy, w}, dx);
    ExpectInBounds(Conv2dWeightGradient(options, {c.kernel, c.kernel}), {dy, x}, w);
    if (type == DType::kF32) {
      const Conv2dInputGradient input_gradient(options, {c.size, c.size}, LinearSums::kF32);
      ExpectInBounds(forward, {x, w}, y, /*f64_sums=*/true);
      ExpectInBounds(input_gradient, {dy, w}, dx, /*f64_sums=*/true);
      ExpectInBounds(Conv2dWeightGradient(options, {c.kernel, c.kernel}), {dy, x}, w,
                     /*f64_sums=*/true);
    }
  }
}

// The objective is a sum over images, so the gradients of parts add up to those of all.
TEST_P(ConvolutionTest, RaggedMicroStepsEqualOneBatch) {
  ConvCase c = GetParam();
  c.images = 7;
  ConvBench whole(c, Products::kF32);
  whole.bench.Run();
  const std::span<const float> x = whole.bench.parameter("x");
  const std::size_t image = x.size() / 7;
  std::vector<float> sums(whole.bench.gradient("weight").size());
  std::vector<float> bias_sums(whole.bench.gradient("bias").size());
  std::size_t first = 0;
  for (const std::int64_t images : {4, 1, 2}) {
    c.images = images;
    ConvBench part(c, Products::kF32);
    std::copy_n(x.begin() + static_cast<std::ptrdiff_t>(first * image),
                part.bench.parameter("x").size(), part.bench.parameter("x").begin());
    for (const char* name : {"weight", "bias"}) {
      std::ranges::copy(whole.bench.parameter(name), part.bench.parameter(name).begin());
    }
    part.CopyTargets(whole, first);
    // The sums so far are what this micro-step adds to.
    std::ranges::copy(sums, part.bench.gradient("weight").begin());
    std::ranges::copy(bias_sums, part.bench.gradient("bias").begin());
    part.bench.Run(/*first=*/first == 0);
    std::ranges::copy(part.bench.gradient("weight"), sums.begin());
    std::ranges::copy(part.bench.gradient("bias"), bias_sums.begin());
    first += static_cast<std::size_t>(images);
  }
  EXPECT_LT(RelativeError(sums, whole.bench.gradient("weight")), 2e-6);
  EXPECT_LT(RelativeError(bias_sums, whole.bench.gradient("bias")), 2e-6);
}

TEST(ImageFunctionsTest, NoGradientWithoutImages) {
  GraphBench bench;
  const ValueId x = bench.Input("x", {0, 4, 4, 2}, {});
  const ValueId w = bench.Parameter("weight", {3, 2, 3, 3});
  const ValueId b = bench.Parameter("bias", {3});
  const ValueId gamma = bench.Parameter("gamma", {3});
  const ValueId beta = bench.Parameter("beta", {3});
  const ValueId y = bench.Apply(std::make_shared<Conv2d>(Conv2dOptions{}), {x, w, b});
  const ValueId norm = bench.Apply(std::make_shared<GroupNorm>(3), {y, gamma, beta});
  const ValueId pooled =
      bench.Apply(std::make_shared<MaxPool2d>(MaxPool2dOptions{.kernel = {2, 2}}), {norm});
  const ValueId flat = bench.Rows(pooled);
  const ValueId targets = bench.Input("targets", {0, 3}, {});
  bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {flat, targets}));
  std::ranges::fill(bench.gradients(), 5.0F);
  bench.Run(/*first=*/false);
  for (const float g : bench.gradients()) EXPECT_EQ(g, 5);
  bench.Run(/*first=*/true);
  for (const char* name : {"weight", "bias", "gamma", "beta"}) {
    for (const float g : bench.gradient(name)) EXPECT_EQ(g, 0) << name;
  }
}

TEST(ImageFunctionsTest, ImagesAreIndependent) {
  const auto run = [](std::int64_t images) {
    GraphBench bench;
    const ValueId x = bench.Input("x", {images, 6, 6, 8});  // the first is the same in all
    const ValueId w = bench.Parameter("weight", {16, 8, 3, 3});
    const ValueId gamma = bench.Parameter("gamma", {16});
    const ValueId beta = bench.Parameter("beta", {16});
    const ValueId y =
        bench.Apply(std::make_shared<Conv2d>(Conv2dOptions{.padding = {1, 1}}), {x, w});
    const ValueId norm = bench.Apply(std::make_shared<GroupNorm>(4), {y, gamma, beta});
    const ValueId pooled =
        bench.Apply(std::make_shared<AdaptiveAvgPool2d>(ImagePair{2, 2}), {norm});
    std::vector<float> values = bench.RunAndRead(pooled);
    values.resize(2 * 2 * 16);
    return values;
  };
  const std::vector<float> one = run(1);
  for (const std::int64_t images : {2, 7, 32}) EXPECT_EQ(run(images), one) << images;
}

TEST(ImageFunctionsTest, NanIsMaximum) {
  GraphBench bench;
  const float infinity = std::numeric_limits<float>::infinity();
  const ValueId x = bench.Input("x", {1, 2, 4, 1},
                                {1, 2, -infinity, -infinity,  //
                                 kNanValue, 9, -infinity, -infinity});
  const std::vector<float> y = bench.RunAndRead(bench.Apply(
      std::make_shared<MaxPool2d>(MaxPool2dOptions{.kernel = {2, 2}, .stride = {2, 2}}), {x}));
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[1], -infinity);
}

TEST(ImageFunctionsTest, FirstOfEqualMaximaCounts) {
  GraphBench bench;
  const ValueId x = bench.Parameter("x", {1, 2, 2, 1});
  std::ranges::fill(bench.parameter("x"), 3.0F);
  const ValueId y =
      bench.Apply(std::make_shared<MaxPool2d>(MaxPool2dOptions{.kernel = {2, 2}}), {x});
  const ValueId flat = bench.Rows(y);
  const ValueId targets = bench.Input("targets", {1, 1}, {2});
  bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {flat, targets}));
  bench.Run();
  const std::span<const float> dx = bench.gradient("x");
  EXPECT_EQ(std::vector<float>(dx.begin(), dx.begin() + 4),
            (std::vector<float>{2 * GraphBench::kWeight, 0, 0, 0}));
}

TEST(ImageFunctionsTest, GroupNormOfEqualValuesIsZero) {
  GraphBench bench;
  const ValueId x = bench.Input("x", {2, 40, 40, 4}, std::vector<float>(2 * 40 * 40 * 4, 1000.1F));
  const ValueId gamma = bench.Parameter("gamma", {4}, 0);
  const ValueId beta = bench.Parameter("beta", {4}, 0);
  std::ranges::fill(bench.parameter("gamma"), 1.0F);
  for (const float y :
       bench.RunAndRead(bench.Apply(std::make_shared<GroupNorm>(2), {x, gamma, beta}))) {
    ASSERT_EQ(y, 0.0F);
  }
}

// Far from 0, where a variance as the mean of squares less the square of the mean would be lost.
TEST(ImageFunctionsTest, GroupNormOfALargeMean) {
  GraphBench bench;
  std::vector<float> values = RandomValues(1, 2 * 5 * 5 * 4);
  for (float& value : values) value += 1e4F;
  const ValueId x = bench.Input("x", {2, 5, 5, 4}, values);
  const ValueId gamma = bench.Parameter("gamma", {4}, 0);
  const ValueId beta = bench.Parameter("beta", {4}, 0);
  std::ranges::fill(bench.parameter("gamma"), 1.0F);
  const std::vector<float> y =
      bench.RunAndRead(bench.Apply(std::make_shared<GroupNorm>(2), {x, gamma, beta}));
  for (std::size_t group = 0; group < 4; ++group) {
    double sum = 0;
    double squares = 0;
    for (std::size_t i = 0; i < 50; ++i) {
      const std::size_t at = (group / 2 * 25 + i / 2) * 4 + group % 2 * 2 + i % 2;
      sum += static_cast<double>(y[at]);
      squares += std::pow(static_cast<double>(y[at]), 2);
    }
    EXPECT_NEAR(sum / 50, 0, 2e-3);
    EXPECT_NEAR(squares / 50, 1, 1e-3);
  }
}

ValueSpec ImageSpec(const Shape& shape) { return {shape, DType::kF32}; }

void ExpectRefusal(const Function& function, const std::vector<ValueSpec>& inputs,
                   const std::string& part) {
  const OutputSpecs outputs = function.Infer(inputs);
  ASSERT_FALSE(outputs.ok()) << part;
  EXPECT_THAT(outputs.status(), IsError(ErrorKind::kConfig, part));
}

TEST(ImageRefusalsTest, Conv2d) {
  const ValueSpec x = ImageSpec({2, 4, 5, 6});
  const ValueSpec w = ImageSpec({8, 6, 3, 3});
  ExpectRefusal(Conv2d({}), {x}, "expected 2 or 3 inputs, found 1");
  ExpectRefusal(Conv2d({}), {ImageSpec({2, 30}), w}, "images [N, height, width, channels]");
  ExpectRefusal(Conv2d({}), {ImageSpec({2, 0, 5, 6}), w}, "found f32 [2, 0, 5, 6]");
  ExpectRefusal(Conv2d({}), {x, ImageSpec({8, 6})}, "the weight: expected f32 [out, in / groups");
  ExpectRefusal(Conv2d({.groups = 3}), {x, ImageSpec({8, 2, 3, 3})}, "3 groups dividing out");
  ExpectRefusal(Conv2d({.groups = 2}), {x, w}, "expects images of 12 channels, found 6");
  ExpectRefusal(Conv2d({}), {x, w, ImageSpec({6})}, "the bias: expected f32 [8]");
  ExpectRefusal(Conv2d({.dilation = {2, 1}}), {x, w},
                "a kernel of 3 x 3 with dilation 2 x 1: expected to cover at most 4 rows of an "
                "image of 4 x 5 with padding 0 x 0, found 5");
  ExpectRefusal(Conv2d({}), {x, ImageSpec({8, 6, 3, 6})}, "at most 5 columns");
  ExpectRefusal(Conv2d({.stride = {0, 1}}), {x, w}, "found stride 0 x 1");
  ExpectRefusal(Conv2d({.padding = {0, -1}}), {x, w}, "padding 0 x -1");
  ExpectRefusal(Conv2d({.groups = 0}), {x, w}, "groups 0");
  ExpectRefusal(Conv2dInputGradient({}, {4, 5}), {x, w}, "the gradient: expected f32 [2, 2, 3, 8]");
  ExpectRefusal(Conv2dWeightGradient({}, {3, 3}), {ImageSpec({2, 2, 2, 8}), x},
                "the gradient: expected f32 [2, 2, 3, 8]");
  ExpectRefusal(Conv2dWeightGradient({.groups = 4}, {3, 3}), {ImageSpec({2, 2, 3, 8}), x},
                "channels that 4 groups divide");
}

TEST(ImageRefusalsTest, Pooling) {
  const ValueSpec x = ImageSpec({2, 4, 5, 6});
  ExpectRefusal(MaxPool2d({.kernel = {5, 2}}), {x},
                "a window of 5 x 2: expected to cover at most 4 rows of an image of 4 x 5");
  ExpectRefusal(MaxPool2d({.kernel = {3, 3}, .padding = {2, 0}}), {x},
                "a padding of at most half of the kernel, found kernel 3, stride 1, dilation 1, "
                "padding 2");
  ExpectRefusal(MaxPool2d({.kernel = {2, 2}, .padding = {1, 0}, .dilation = {5, 1}}), {x},
                "a value of the image in every window, found one in padding alone, along 4 rows "
                "with padding 1");
  const auto wide = MaxPool2d({.kernel = {2, 2}, .padding = {1, 0}, .dilation = {4, 1}});
  EXPECT_TRUE(wide.Infer(std::vector<ValueSpec>{x}).ok());
  ExpectRefusal(AvgPool2d({.kernel = {2, 2}, .stride = {1, 0}}), {x}, "stride 0");
  ExpectRefusal(AvgPool2d({}), {ImageSpec({2, 30})}, "images [N, height, width, channels]");
  ExpectRefusal(AdaptiveAvgPool2d({0, 1}), {x}, "at least 1 x 1, found 0 x 1");
}

TEST(ImageRefusalsTest, GroupNormAndOrder) {
  const ValueSpec x = ImageSpec({2, 4, 5, 6});
  const ValueSpec six = ImageSpec({6});
  ExpectRefusal(GroupNorm(4), {x, six, six}, "groups that divide the 6 channels, found 4");
  ExpectRefusal(GroupNorm(0), {x, six, six}, "found 0");
  ExpectRefusal(GroupNorm(2), {x, ImageSpec({5}), six}, "gamma: expected f32 [6]");
  ExpectRefusal(GroupNorm(2), {x, six, ImageSpec({5})}, "beta: expected f32 [6]");
  ExpectRefusal(GroupNormGradient(), {x, x, six, ImageSpec({2, 4}), ImageSpec({2, 4})},
                "the mean: expected [2, groups that divide 6], found [2, 4]");
  ExpectRefusal(ChannelsLast(), {ImageSpec({2, 30})}, "found f32 [2, 30]");
}

}  // namespace
}  // namespace gaccd
