// Convolutions in bf16 and fp16 by a library against gaccd's own ones in f32, on the same GPU:
// cuDNN on a real one (tests/gpu), and the stand-in's library on the stand-in.
#include <gmock/gmock.h>

#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/ops/cuda_kernels.h"
#include "daemon/ops/image/conv2d.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/gpu_bench.h"

namespace gaccd {
namespace {

struct ConvCase {
  std::int64_t images, in, out;
  ImagePair image, kernel;
  Conv2dOptions options = {};
};

// As `dtype` holds them, others for every seed.
std::vector<float> ConvValues(std::int64_t count, int seed, DType dtype) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(std::sin(seed + 0.7 * static_cast<double>(i * i % 1009)));
  }
  return Stored(dtype, std::move(values));
}

// A convolution and its gradients, that of the weight added to itself once.
struct ConvOutcome {
  std::vector<float> y, dx, dweight;
};

// computed: the weight is no parameter.
ConvOutcome Convolve(CudaContext& context, DType dtype, const ConvCase& c, DType values,
                     bool computed = false) {
  const Conv2d forward(c.options);
  const Conv2dInputGradient by_input(c.options, c.image);
  const Conv2dWeightGradient by_weight(c.options, c.kernel);
  const ValueSpec x{{c.images, c.image[0], c.image[1], c.in}, dtype};
  const ValueSpec weight{{c.out, c.in / c.options.groups, c.kernel[0], c.kernel[1]}, DType::kF32};
  const ValueSpec y = ValueOrThrow(forward.Infer(std::array{x, weight}))[0];
  const GpuFloats of_x(dtype, ConvValues(Elements(x.shape), 1, values));
  const GpuFloats of_y(dtype, ConvValues(Elements(y.shape), 2, values));
  const std::vector<float> weights = ConvValues(Elements(weight.shape), 3, values);
  const GpuArray<float> of_weight(weights);
  const GpuFloats copy(dtype == DType::kF32 ? DType::kBF16 : dtype, weights);
  context.SetHalfCopy(of_weight.data(), Elements(weight.shape), copy.data());
  const GpuFloats to_y(dtype, static_cast<std::size_t>(Elements(y.shape)));
  const GpuFloats to_x(dtype, static_cast<std::size_t>(Elements(x.shape)));
  const GpuArray<float> to_weight(static_cast<std::size_t>(Elements(weight.shape)));
  const auto kernels = MakeCudaKernels(context);
  const auto run = [&](const Function& function, const std::vector<ValueSpec>& specs,
                       std::vector<void*> inputs, const ValueSpec& output, void* to, int times) {
    const auto* const parameter = static_cast<const float*>(inputs[1]);
    const std::array<const float*, 2> parameters = {nullptr, computed ? nullptr : parameter};
    const auto kernel =
        ValueOrThrow(kernels->Make({function, specs, std::array{output}, parameters}));
    const GpuArray<char> scratch(static_cast<std::size_t>(kernel->scratch_bytes()) + 1);
    kernel->Bind({inputs, std::array{to}, scratch.data()});
    for (int i = 0; i < times; ++i) EXPECT_OK(kernel->Run(OutputMask(i > 0 ? 1 : 0)));
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  };
  run(forward, {x, weight}, {of_x.data(), of_weight.data()}, y, to_y.data(), 1);
  run(by_input, {y, weight}, {of_y.data(), of_weight.data()}, x, to_x.data(), 1);
  run(by_weight, {y, x}, {of_y.data(), of_x.data()}, weight, to_weight.data(), 2);
  return {to_y.Values(), to_x.Values(), to_weight.Values()};
}

TEST(ConvLibrary, EqualsOwnConvolutionInF32) {
  const Result<DnnFactory> library = DnnOfTest();
  if (!library.ok()) {
    PrintSkip("convolutions by cuDNN", library.status().message());
    GTEST_SKIP() << library.status().message();
  }
  const auto own = MakeTestContext();
  ASSERT_NE(own, nullptr);
  double worst = 0;
  double worst_weight = 0;
  for (const bool deterministic : {true, false}) {
    const auto by_library = MakeTestContext(*library, {.deterministic = deterministic});
    ASSERT_NE(by_library, nullptr);
    for (const ConvCase& c :
         {ConvCase{3, 16, 24, {9, 11}, {3, 3}, {.padding = {1, 1}}},
          ConvCase{2, 32, 16, {8, 8}, {1, 1}},
          ConvCase{2, 16, 32, {8, 9}, {1, 1}, {.stride = {2, 2}}},
          ConvCase{2, 3, 16, {20, 17}, {7, 7}, {.stride = {2, 2}, .padding = {3, 3}}},
          ConvCase{2, 24, 24, {10, 10}, {5, 5}, {.padding = {2, 2}, .groups = 24}},
          ConvCase{2, 16, 32, {7, 7}, {3, 3}, {.stride = {2, 1}, .padding = {1, 0}, .groups = 2}},
          ConvCase{2, 8, 8, {12, 12}, {3, 3}, {.padding = {2, 2}, .dilation = {2, 2}}},
          ConvCase{2, 5, 7, {6, 5}, {2, 3}}, ConvCase{1, 1, 8, {7, 7}, {3, 3}}}) {
      for (const DType dtype : {DType::kBF16, DType::kFP16}) {
        SCOPED_TRACE(StrCat(c.in, " -> ", c.out, ", kernel ", c.kernel[0], " x ", c.kernel[1], ", ",
                            c.options.groups, " groups, ", Name(dtype)));
        const ConvOutcome expected = Convolve(*own, DType::kF32, c, dtype);
        const ConvOutcome found = Convolve(*by_library, dtype, c, dtype);
        const ConvOutcome computed = Convolve(*by_library, dtype, c, dtype, /*computed=*/true);
        EXPECT_EQ(computed.y, found.y);
        EXPECT_EQ(computed.dx, found.dx);
        EXPECT_THAT(by_library->DrainWarnings(), testing::IsEmpty());
        const double finer = dtype == DType::kFP16 ? 8 : 1;
        worst = std::max({worst, finer * RelativeError(found.y, expected.y),
                          finer * RelativeError(found.dx, expected.dx)});
        worst_weight = std::max(worst_weight, RelativeError(found.dweight, expected.dweight));
        EXPECT_LT(worst, 4e-3);
        EXPECT_LT(worst_weight, 1e-5);
      }
    }
  }
  PrintRow("convolutions in 16 bits by the library", worst < 4e-3 && worst_weight < 1e-5,
           "rounded once: 4e-3, gradients of weights to 1e-5",
           StrCat(worst, " and ", worst_weight));
}

}  // namespace
}  // namespace gaccd
