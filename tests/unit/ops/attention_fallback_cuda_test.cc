// Which kernel computes attention: the library in bf16 and fp16 where it can, else gaccd's own.
// Only the stand-in's library can refuse, and counts.
#include <gmock/gmock.h>

#include "daemon/autograd/passes.h"
#include "daemon/ops/attention/attention.h"
#include "daemon/ops/cuda_kernels.h"
#include "tests/standin/sdpa_standin.h"
#include "tests/support/gpu_bench.h"
#include "tests/support/graph_cases.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

class AttentionFallback : public testing::Test {
 protected:
  void TearDown() override { standin::SetSdpa(); }

  // The warnings of two equal layers and of their gradients.
  static std::vector<std::string> CollectWarnings(DType dtype, const standin::SdpaOptions& options,
                                                  const DnnFactory& opener = &standin::OpenDnn) {
    standin::SetSdpa(options);
    const auto context = MakeTestContext(opener);
    const auto kernels = MakeCudaKernels(*context);
    const AttentionOptions attention{.heads = 2, .length = 10};
    const ValueSpec qkv{{20, 48}, dtype};
    const ValueSpec y{{20, 16}, dtype};
    const std::vector<ValueSpec> outputs = {y, {{2, 2, 10}, DType::kF32}};
    const std::vector<ValueSpec> backward = {y, y, outputs[1], qkv};
    const std::vector<const float*> none(4);
    for (int layer = 0; layer < 2; ++layer) {
      const auto forward =
          kernels->Make({Attention(attention), {&qkv, 1}, outputs, std::span(none).first(1)});
      EXPECT_TRUE(forward.ok()) << forward.status().message();
      const auto gradient =
          kernels->Make({AttentionGradient(attention), backward, {&qkv, 1}, none});
      EXPECT_TRUE(gradient.ok()) << gradient.status().message();
    }
    return context->DrainWarnings();
  }
};

TEST_F(AttentionFallback, LibraryIsUsedForBf16AndFp16Only) {
  EXPECT_THAT(CollectWarnings(DType::kBF16, {}), IsEmpty());
  EXPECT_EQ(standin::CountSdpa().plans, 4);
  EXPECT_EQ(standin::CountSdpa().fp16, 0);
  EXPECT_THAT(CollectWarnings(DType::kFP16, {}), IsEmpty());
  EXPECT_EQ(standin::CountSdpa().fp16, 4);
  EXPECT_THAT(CollectWarnings(DType::kF32, {}), IsEmpty());
  EXPECT_EQ(standin::CountSdpa().plans, 0);
}

TEST_F(AttentionFallback, DoesNotOpenLibraryIfThereIsNone) {
  EXPECT_THAT(CollectWarnings(DType::kBF16, {}, nullptr), IsEmpty());
  EXPECT_EQ(standin::CountSdpa().plans, 0);
}

TEST_F(AttentionFallback, LibraryThatFailsToStartIsAWarning) {
  EXPECT_THAT(CollectWarnings(DType::kBF16, {.does_not_start = "no memory for a handle"}),
              ElementsAre("attention by gaccd's own kernel, some 20 times slower: "
                          "no memory for a handle"));
  EXPECT_EQ(standin::CountSdpa().plans, 0);
}

TEST_F(AttentionFallback, LibraryThatRefusesIsAWarning) {
  EXPECT_THAT(CollectWarnings(DType::kBF16, {.refuses_backward = true}),
              ElementsAre(AllOf(HasSubstr("gradient of attention of 2 sequences of 10 rows"),
                                HasSubstr("no engine"))));
  EXPECT_EQ(standin::CountSdpa().plans, 2);
}

// Of a GPT-2 with long rows: 25 GB for the deterministic gradient, 0.4 GB for the other one.
TEST_F(AttentionFallback, GradientIsDeterministicIfContextIs) {
  const AttentionOptions options{.heads = 12, .length = 8192, .causal = true};
  constexpr std::int64_t kRows = 16 * 8192;
  const ValueSpec y{{kRows, 768}, DType::kBF16};
  const ValueSpec qkv{{kRows, 3 * 768}, DType::kBF16};
  const std::vector<ValueSpec> inputs = {y, y, {{16, 12, 8192}, DType::kF32}, qkv};
  const std::vector<const float*> none(4);
  for (const bool deterministic : {false, true}) {
    standin::SetSdpa();
    const auto context = MakeTestContext(&standin::OpenDnn, {.deterministic = deterministic});
    const auto kernels = MakeCudaKernels(*context);
    EXPECT_TRUE(kernels->Make({AttentionGradient(options), inputs, {&qkv, 1}, none}).ok());
    EXPECT_EQ(standin::CountSdpa().plans, deterministic ? 0 : 1);
    EXPECT_EQ(standin::CountSdpa().deterministic, 0);
    if (deterministic) {
      EXPECT_THAT(
          context->DrainWarnings(),
          ElementsAre(AllOf(HasSubstr("causal, deterministic needs a workspace of 24576 MiB"),
                            HasSubstr("or a job that is not deterministic"))));
    } else {
      EXPECT_THAT(context->DrainWarnings(), IsEmpty());
    }
  }
}

// Convolutions go another way, and say so once for each pass.
TEST_F(AttentionFallback, RefusedConvolutionIsAWarning) {
  for (const bool refuses : {false, true}) {
    standin::SetSdpa({.refuses_convolutions = refuses});
    for (const GraphCase& test_case : ImageCases()) {
      if (!std::string_view(test_case.name).starts_with("conv2d")) continue;
      SCOPED_TRACE(test_case.name);
      GraphBench host;
      host.PrepareTraining(test_case.record(host, {5, 3, 4}));
      host.Run();
      GraphBench half;
      half.RecordTraining(test_case.record(half, {5, 3, 4, DType::kBF16}));
      Simplify(half.graph());
      GpuBench gpu(half, {.copy = DType::kBF16, .dnn = &standin::OpenDnn});
      ASSERT_FALSE(HasFatalFailure());
      const auto warnings = gpu.context().DrainWarnings();
      EXPECT_EQ(warnings.empty(), !refuses);
      EXPECT_THAT(warnings, Each(StartsWith(std::string(kOwnConvolution))));
      gpu.Run();
      EXPECT_LT(gpu.ErrorOfGradients(host), 3e-2);
    }
    EXPECT_EQ(standin::CountSdpa().convolutions > 0, !refuses);
  }
}

// The library's y and sums are what the own gradient kernel takes; it computes no rows beyond
// lengths.
TEST_F(AttentionFallback, GradientMayUseOwnKernel) {
  for (const GraphCase& test_case : SequenceCases()) {
    if (!std::string_view(test_case.name).starts_with("attention")) continue;
    SCOPED_TRACE(test_case.name);
    const bool own = std::string_view(test_case.name).ends_with("all_rows");
    GraphBench host;
    host.PrepareTraining(test_case.record(host, {20, 1, 8}));
    host.Run();
    for (const bool refuses : {false, true}) {
      standin::SetSdpa({.refuses_backward = refuses});
      GraphBench half;
      half.RecordTraining(test_case.record(half, {20, 1, 8, DType::kBF16}));
      Simplify(half.graph());
      GpuBench gpu(half, {.copy = DType::kBF16, .dnn = &standin::OpenDnn});
      ASSERT_FALSE(HasFatalFailure());
      EXPECT_EQ(gpu.context().DrainWarnings().size(), own || refuses ? 1U : 0U);
      gpu.Run();
      EXPECT_EQ(standin::CountSdpa().ran, own ? 0 : refuses ? 1 : 2);
      EXPECT_NEAR(gpu.Output<double>(half.objective_id()) / host.objective(), 1, 1e-2);
      EXPECT_LT(gpu.ErrorOfGradients(host), 2e-2);
    }
  }
}

}  // namespace
}  // namespace gaccd
