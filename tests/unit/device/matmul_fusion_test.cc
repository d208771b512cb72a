#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "daemon/device/cuda/matmul_choices.h"
#include "daemon/device/cuda/matmul_cuda.h"
#include "daemon/device/cuda/matmul_timing.h"
#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/standin.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

constexpr CudaNumerics kTimed{.time_algorithms = true};
constexpr MatmulCudaSpec kPlain{.m = 5, .n = 7, .k = 6, .transpose_a = true, .accumulate = true};
constexpr MatmulCudaSpec kFused{
    .m = 5, .n = 7, .k = 6, .transpose_a = true, .accumulate = true, .column_sums = true};

class MatmulFusionTest : public ::testing::Test {
 protected:
  // Products with column sums take 20 ms longer.
  void SetUp() override {
    standin::Reset();
    standin::SetCublasLt({.slow = {CUBLASLT_EPILOGUE_BGRADB}, .delay_us = 20'000});
  }
  void TearDown() override {
    standin::SetCublasLt();
    standin::Reset();
  }
  static std::unique_ptr<CudaContext> MakeContext(CudaNumerics numerics,
                                                  const std::string& folder = "") {
    return CudaContext::Create({.numerics = numerics,
                                .choices_folder = folder,
                                .cublaslt = &standin::StandInCublasLt()})
        .value();
  }
  // The kernel takes `kernel` microseconds.
  Result<std::optional<bool>> IsFaster(CudaContext& context, const Result<double>& kernel) {
    EXPECT_TRUE(MatmulCuda::Prepare(context, kFused).ok());
    EXPECT_TRUE(MatmulCuda::Prepare(context, kPlain).ok());
    return IsEpilogueFaster(context, kFused, kPlain, [&] {
      ++kernels_timed_;
      return kernel;
    });
  }

  const standin::VirtualClock clock_;
  int kernels_timed_ = 0;
};

TEST_F(MatmulFusionTest, TimesFusedAgainstSeparateAndKeepsAnswer) {
  const TempFolder folder;
  EXPECT_EQ(IsFaster(*MakeContext(kTimed), 1e6).value(), true);
  EXPECT_EQ(IsFaster(*MakeContext(kTimed, folder.path()), 1.0).value(), false);
  EXPECT_EQ(kernels_timed_, 2);
  EXPECT_EQ(IsFaster(*MakeContext(kTimed, folder.path()), 1e6).value(), false);
  EXPECT_EQ(kernels_timed_, 2);
}

TEST_F(MatmulFusionTest, IsUnknownIfUntimed) {
  for (const CudaNumerics numerics :
       {CudaNumerics{}, CudaNumerics{.deterministic = true, .time_algorithms = true}}) {
    EXPECT_EQ(IsFaster(*MakeContext(numerics), 1.0).value(), std::nullopt);
  }
  EXPECT_EQ(kernels_timed_, 0);
}

TEST_F(MatmulFusionTest, IsUnknownWithoutMemoryAndReturnsOtherErrors) {
  const auto context = MakeContext(kTimed);
  EXPECT_EQ(IsFaster(*context, Status(ErrorKind::kOs, "no room")).value(), std::nullopt);
  EXPECT_THAT(context->choices().DrainWarnings(), ElementsAre(HasSubstr("no room")));
  EXPECT_FALSE(IsFaster(*context, Status(ErrorKind::kUnavailable, "lost")).ok());
}

TEST_F(MatmulFusionTest, CountsTilesThatFillGpu) {
  const auto context = MakeContext({});
  ASSERT_EQ(context->multiprocessors(), 4);
  EXPECT_FALSE(FillsTheGpu(*context, {.m = 128, .n = 3 * 128}));
  EXPECT_TRUE(FillsTheGpu(*context, {.m = 128, .n = 3 * 128 + 1}));
  EXPECT_TRUE(FillsTheGpu(*context, {.m = 129, .n = 129}));
}

}  // namespace
}  // namespace gaccd
