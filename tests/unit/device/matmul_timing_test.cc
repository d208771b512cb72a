// Which algorithm is chosen, how often the clock is asked, and what every failure leaves behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/matmul_choices.h"
#include "daemon/device/cuda/matmul_cuda.h"
#include "tests/standin/standin.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/fake_cublaslt.h"

namespace gaccd {
namespace {

constexpr MatmulCudaSpec kSpec{.m = 8, .n = 16, .k = 32, .bias = true};
constexpr MatmulCudaSpec kOther{.m = 9, .n = 16, .k = 32, .bias = true};

class MatmulTimingTest : public ::testing::Test {
 protected:
  void SetUp() override {
    standin::Reset();
    ResetFakeCublasLt();
    std::filesystem::remove_all(folder_);
    // The fastest is neither first nor last.
    fake_.offered = {{.id = 1, .microseconds = 3000},
                     {.id = 2, .microseconds = 0},
                     {.id = 3, .microseconds = 1500}};
  }
  void TearDown() override {
    std::filesystem::remove_all(folder_);
    standin::Reset();
    ResetFakeCublasLt();
  }

  std::unique_ptr<CudaContext> MakeContext(CudaNumerics numerics = {.time_algorithms = true}) {
    return CudaContext::Create(
               {.numerics = numerics, .choices_folder = folder_, .cublaslt = &FakeCublasLtApi()})
        .value();
  }
  // The algorithm that a prepared product runs.
  int Chosen(MatmulCuda& matmul) {
    const DeviceBuffer memory = DeviceBuffer::Allocate(1 << 18, "operands").value();
    EXPECT_TRUE(
        matmul.Bind(memory.data(), memory.data(), memory.data(), memory.data(), nullptr).ok());
    fake_.runs.clear();
    EXPECT_TRUE(matmul.Run().ok());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    EXPECT_EQ(fake_.runs.size(), 1U);
    return fake_.runs.begin()->first;
  }
  int Prepared(CudaContext& context, const MatmulCudaSpec& spec) {
    const auto matmul = MatmulCuda::Prepare(context, spec);
    EXPECT_TRUE(matmul.ok()) << matmul.status().message();
    return matmul.ok() ? Chosen(**matmul) : 0;
  }
  std::string File() {
    for (const auto& file : std::filesystem::directory_iterator(folder_)) {
      return file.path().string();
    }
    return {};
  }

  const standin::VirtualClock clock_;
  FakeCublasLt& fake_ = ResetFakeCublasLt();
  const std::string folder_ = StrCat(::testing::TempDir(), "gaccd-timing-", getpid());
};

TEST_F(MatmulTimingTest, ChoosesFastestAndTimesEachOnce) {
  const auto context = MakeContext();
  EXPECT_EQ(Prepared(*context, kSpec), 2);
  EXPECT_EQ(context->choices().timed(), 1);
  fake_.runs.clear();
  EXPECT_EQ(Prepared(*context, kSpec), 2);  // known
  EXPECT_EQ(context->choices().timed(), 1);
  EXPECT_EQ(Prepared(*context, kOther), 2);
  EXPECT_EQ(context->choices().timed(), 2);
  EXPECT_THAT(context->choices().DrainNotes(), IsEmpty());
}

TEST_F(MatmulTimingTest, NextRunReadsFileAfterOneTrial) {
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 2);
  const auto context = MakeContext();
  fake_.runs.clear();
  const auto matmul = MatmulCuda::Prepare(*context, kSpec).value();
  EXPECT_EQ(fake_.runs, (std::map<int, int>{{2, 1}}));
  EXPECT_EQ(context->choices().timed(), 0);
  EXPECT_EQ(Chosen(*matmul), 2);
}

TEST_F(MatmulTimingTest, UsesFirstIfUntimedOrDeterministic) {
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 2);  // makes the file
  for (const CudaNumerics numerics :
       {CudaNumerics{.deterministic = true, .time_algorithms = true}, CudaNumerics{}}) {
    const auto context = MakeContext(numerics);
    const std::int64_t launches = standin::Count().graph_launches;
    fake_.runs.clear();
    const auto matmul = MatmulCuda::Prepare(*context, kSpec).value();
    EXPECT_EQ(fake_.runs, (std::map<int, int>{{1, 1}}));
    EXPECT_EQ(standin::Count().graph_launches, launches);
    EXPECT_EQ(context->choices().timed(), 0);
    EXPECT_EQ(context->choices().path(), "");
    EXPECT_EQ(Chosen(*matmul), 1);
  }
}

// A GPU is faster on zeros, and another algorithm may be the fastest there.
TEST_F(MatmulTimingTest, TimesOnRandomData) {
  fake_.looked_at = std::size_t{64} * 64;
  const auto context = MakeContext();
  const MatmulCudaSpec spec{.m = 64, .n = 64, .k = 64, .ab = DType::kBF16};
  ASSERT_TRUE(MatmulCuda::Prepare(*context, spec).ok());
  EXPECT_GT(fake_.distinct.size(), 500U);
  fake_.distinct.clear();
  ASSERT_TRUE(MatmulCuda::Prepare(*MakeContext(CudaNumerics{}), spec).ok());
  EXPECT_EQ(fake_.distinct, (std::set<std::uint16_t>{0, 0x3F80})) << "where no time is taken";
}

TEST_F(MatmulTimingTest, RejectsAlgorithmThatDropsTerms) {
  fake_.offered[1].drops_tail = true;
  const auto context = MakeContext();
  EXPECT_EQ(Prepared(*context, kSpec), 3);
  EXPECT_THAT(context->choices().DrainWarnings(),
              ElementsAre(HasSubstr("leaves out the last of its 32 terms")));
  fake_.offered[0].drops_tail = true;
  EXPECT_EQ(Prepared(*MakeContext(CudaNumerics{}), kOther), 3);
  fake_.offered[2].drops_tail = true;
  EXPECT_FALSE(MatmulCuda::Prepare(*MakeContext(CudaNumerics{}), kOther).ok());
}

TEST_F(MatmulTimingTest, RetimesKeptChoiceThatDropsTerms) {
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 2);
  fake_.offered[1].drops_tail = true;
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 3);
}

TEST_F(MatmulTimingTest, RetimesKeptChoiceThatLibraryRefuses) {
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 2);
  fake_.offered[1].checked = CUBLAS_STATUS_NOT_SUPPORTED;
  fake_.offered[1].microseconds = 4000;
  const auto context = MakeContext();
  EXPECT_EQ(Prepared(*context, kSpec), 3);
  EXPECT_THAT(context->choices().DrainNotes(),
              Contains(HasSubstr("the kept choice cannot be used")));
  EXPECT_EQ(context->choices().timed(), 1);
  context->choices().Save();
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 3);
}

TEST_F(MatmulTimingTest, RetimesKeptChoiceThatNeedsMoreWorkspace) {
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 2);
  fake_.offered[1].workspace = CudaContext::kWorkspaceBytes + 1;
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 3);
}

TEST_F(MatmulTimingTest, RetimesKeptChoiceThatFails) {
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 2);
  fake_.offered[1].runs = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 3);
}

TEST_F(MatmulTimingTest, RetimesAfterDamagedFile) {
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 2);
  std::ofstream(File(), std::ios::app) << "x";
  const auto context = MakeContext();
  EXPECT_EQ(Prepared(*context, kSpec), 2);
  EXPECT_EQ(context->choices().timed(), 1);
  EXPECT_THAT(context->choices().DrainNotes(), Contains(HasSubstr("are not used")));
}

TEST_F(MatmulTimingTest, RetimesForNewerLibrary) {
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 2);
  fake_.version += 100;
  const auto context = MakeContext();
  EXPECT_EQ(Prepared(*context, kSpec), 2);
  EXPECT_EQ(context->choices().timed(), 1);
}

TEST_F(MatmulTimingTest, ReportsLibraryOverridesAndKeepsNothing) {
  ASSERT_EQ(setenv("NVIDIA_TF32_OVERRIDE", "0", 1), 0);
  const auto context = MakeContext();
  ASSERT_EQ(unsetenv("NVIDIA_TF32_OVERRIDE"), 0);
  EXPECT_EQ(context->choices().path(), "");
  EXPECT_THAT(context->choices().DrainNotes(), Contains(HasSubstr("NVIDIA_TF32_OVERRIDE=0")));
}

TEST_F(MatmulTimingTest, RefusesOlderLibrary) {
  fake_.version = 120900;
  EXPECT_THAT(CudaContext::Create({.cublaslt = &FakeCublasLtApi()}),
              HasMessage(HasSubstr("found 12.9.0")));
}

TEST_F(MatmulTimingTest, SkipsFailingAndTooLargeCandidates) {
  fake_.offered[1].runs = CUBLAS_STATUS_NOT_SUPPORTED;
  EXPECT_EQ(Prepared(*MakeContext(), kSpec), 3);
  fake_.offered[2].workspace = CudaContext::kWorkspaceBytes + 1;
  EXPECT_EQ(Prepared(*MakeContext(), kOther), 1);
  EXPECT_EQ(Prepared(*MakeContext({.deterministic = true}), kOther), 1);
  fake_.offered[0].runs = CUBLAS_STATUS_ARCH_MISMATCH;
  for (const bool deterministic : {false, true}) {
    const auto context = MakeContext({.deterministic = deterministic});
    EXPECT_THAT(MatmulCuda::Prepare(*context, MatmulCudaSpec{.m = 1, .n = 1, .k = 1}),
                HasMessage(HasSubstr("no algorithm for it that runs")));
  }
}

// Where nothing can be tried, what the heuristic itself calls unusable is left out all the same.
TEST_F(MatmulTimingTest, UsesFirstUsableWithoutMemoryForTrial) {
  fake_.offered[0].state = CUBLAS_STATUS_NOT_SUPPORTED;
  fake_.offered[1].workspace = CudaContext::kWorkspaceBytes + 1;
  standin::Reset({.memory_bytes = CudaContext::kWorkspaceBytes + (1 << 20)});
  const auto context = MakeContext();
  EXPECT_EQ(Prepared(*context, MatmulCudaSpec{.m = 256, .n = 256, .k = 2048}), 3);
  EXPECT_THAT(context->choices().DrainWarnings(),
              Contains(testing::AllOf(HasSubstr("not tried"), HasSubstr("no memory on the GPU"))));
  EXPECT_EQ(context->choices().timed(), 0);
}

TEST_F(MatmulTimingTest, AnswersThatMeanNotSupported) {
  const auto context = MakeContext();
  for (const cublasStatus_t status :
       {CUBLAS_STATUS_NOT_SUPPORTED, CUBLAS_STATUS_ARCH_MISMATCH, CUBLAS_STATUS_INVALID_VALUE}) {
    fake_.heuristic = status;
    EXPECT_EQ(MatmulCuda::TryPrepare(*context, kSpec).value(), nullptr) << status;
    EXPECT_FALSE(MatmulCuda::Prepare(*context, kSpec).ok()) << status;
  }
  EXPECT_THAT(context->choices().DrainNotes(), Contains(HasSubstr("calls it invalid")));
  fake_.heuristic = CUBLAS_STATUS_SUCCESS;
  fake_.offered.clear();
  EXPECT_EQ(MatmulCuda::TryPrepare(*context, kSpec).value(), nullptr);
  fake_.heuristic = CUBLAS_STATUS_INTERNAL_ERROR;
  EXPECT_FALSE(MatmulCuda::TryPrepare(*context, kSpec).ok());
}

// Each call of each function fails once; the error comes back and nothing of it is left.
TEST_F(MatmulTimingTest, ReturnsEveryCublasLtFailure) {
  for (const std::string function :
       {"cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatrixLayoutCreate",
        "cublasLtMatmulPreferenceCreate", "cublasLtMatmulDescSetAttribute",
        "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmul"}) {
    fake_.offered = {{.id = 1, .microseconds = 300}, {.id = 2, .microseconds = 300}};
    int failures = 0;
    while (true) {
      fake_.failing = function;
      fake_.failing_call = failures + 1;
      const auto context = CudaContext::Create(
          {.numerics = {.time_algorithms = true}, .cublaslt = &FakeCublasLtApi()});
      if (context.ok()) {
        const auto matmul = MatmulCuda::Prepare(**context, kSpec);
        if (matmul.ok()) break;
        EXPECT_THAT(matmul, IsError(ErrorKind::kUnavailable, "the status set in the fake",
                                    "[8, 32] x [32, 16]"));
        EXPECT_EQ(fake_.live, 1) << function;  // the handle of the context
        EXPECT_EQ(standin::LiveBytes(0), std::int64_t{CudaContext::kWorkspaceBytes}) << function;
      }
      ++failures;
      ASSERT_LT(failures, 1000);
    }
    EXPECT_GE(failures, 1) << function;
    fake_.failing.clear();
    EXPECT_EQ(fake_.live, 0) << function;
  }
}

TEST_F(MatmulTimingTest, ReturnsEveryCudaFailure) {
  for (const std::string function :
       {"cudaSetDevice", "cudaGetDeviceProperties", "cudaStreamCreateWithPriority", "cudaMalloc",
        "cudaMemset", "cudaEventCreateWithFlags", "cudaEventRecord", "cudaEventSynchronize",
        "cudaEventElapsedTime", "cudaStreamSynchronize", "cudaStreamBeginCapture",
        "cudaGraphInstantiate", "cudaGraphLaunch"}) {
    fake_.offered = {{.id = 1, .microseconds = 300}, {.id = 2, .microseconds = 300}};
    int failures = 0;
    while (true) {
      standin::Reset();
      standin::FailCall(function, failures + 1, cudaErrorUnknown);
      const auto context = CudaContext::Create(
          {.numerics = {.time_algorithms = true}, .cublaslt = &FakeCublasLtApi()});
      if (context.ok()) {
        const auto matmul = MatmulCuda::Prepare(**context, kSpec);
        if (matmul.ok()) break;
        EXPECT_THAT(matmul, IsError(ErrorKind::kUnavailable, "cudaErrorUnknown"));
        EXPECT_EQ(standin::LiveBytes(0), std::int64_t{CudaContext::kWorkspaceBytes}) << function;
      } else {
        EXPECT_THAT(context, HasMessage(HasSubstr("cudaErrorUnknown")));
        EXPECT_EQ(standin::LiveBytes(0), 0) << function;
      }
      ++failures;
      ASSERT_LT(failures, 1000);
    }
    EXPECT_GE(failures, 1) << function;
    standin::Reset();
    EXPECT_EQ(fake_.live, 0) << function;
  }
}

// A kernel that fails while algorithms are tried: the error, not another algorithm.
TEST_F(MatmulTimingTest, DistinguishesGpuFailureFromRefusal) {
  const auto context = MakeContext();
  standin::FailKernel(1, cudaErrorIllegalAddress);
  EXPECT_THAT(MatmulCuda::Prepare(*context, kSpec),
              HasMessage(HasSubstr("cudaErrorIllegalAddress")));
}

TEST_F(MatmulTimingTest, FailedRunNamesProduct) {
  const auto context = MakeContext();
  const auto matmul = MatmulCuda::Prepare(*context, kSpec).value();
  const DeviceBuffer memory = DeviceBuffer::Allocate(65536, "operands").value();
  ASSERT_TRUE(
      matmul->Bind(memory.data(), memory.data(), memory.data(), memory.data(), nullptr).ok());
  fake_.failing = "cublasLtMatmul";
  fake_.failing_call = 1;
  EXPECT_THAT(matmul->Run(), IsError(ErrorKind::kUnavailable, "product [8, 32] x [32, 16]: A f32"));
  EXPECT_TRUE(matmul->Run().ok());
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Products that still run keep the workspace alive.
TEST_F(MatmulTimingTest, ContextWaitsForProducts) {
  auto context = MakeContext({.deterministic = true});
  const auto matmul = MatmulCuda::Prepare(*context, kSpec).value();
  const DeviceBuffer memory = DeviceBuffer::Allocate(65536, "operands").value();
  ASSERT_TRUE(
      matmul->Bind(memory.data(), memory.data(), memory.data(), memory.data(), nullptr).ok());
  ASSERT_TRUE(matmul->Run().ok());
  context.reset();
}

}  // namespace
}  // namespace gaccd
