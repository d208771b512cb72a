// When a rank, its GPU or NCCL fails in the middle of training, every rank gets an error within the
// bound, and nothing is left on the GPUs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "daemon/train/update.h"
#include "tests/ranks/cuda_engine_ranks.h"
#include "tests/sanitized.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kBound{kSanitized ? 8'000 : 3'000};
// The updates before the failure count, too, which a busy machine computes slowly. Who does not
// fail by itself waits for the other ranks for ever.
constexpr milliseconds kInTime = kBound + milliseconds(kSanitized ? 60'000 : 30'000);

// For how long a rank hangs: a busy machine lets the others begin to wait for it seconds later.
constexpr milliseconds kHang = 2 * kBound;

const EngineCase kCase{.name = "three", .ranks = 3, .micro = 5, .target = 40, .updates = 40};

class CudaEngineFailureTest : public ::testing::Test {
 protected:
  void SetUp() override { ResetGpus(3); }
  void TearDown() override {
    EXPECT_EQ(standin::LiveNcclComms(), 0);
    for (const int device : {-1, 0, 1, 2}) EXPECT_EQ(standin::LiveBytes(device), 0) << device;
  }

  void ExpectAllFailInTime(const std::vector<RankOutcome>& outcomes) {
    for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
      SCOPED_TRACE(rank);
      ASSERT_THAT(outcomes[rank].run, HasKind(ErrorKind::kUnavailable));
      EXPECT_LE(outcomes[rank].took, kInTime) << outcomes[rank].run.status().message();
    }
  }
};

TEST_F(CudaEngineFailureTest, AsynchronousErrorOfPeerEndsAllRanks) {
  for (const int nth : {1, 7, 20}) {
    ResetGpus(3);
    standin::BreakNccl(1, nth, ncclRemoteError);
    ExpectAllFailInTime(RunCudaRanks(kCase, {.choice = {.bucket_elements = 1}, .bound = kBound}));
  }
}

TEST_F(CudaEngineFailureTest, FailingGpuEndsAllRanks) {
  for (const int nth : {200, 2000}) {
    ResetGpus(3);
    standin::FailKernel(nth, cudaErrorIllegalAddress);
    ExpectAllFailInTime(RunCudaRanks(kCase, {.choice = {.bucket_elements = 1}, .bound = kBound}));
  }
}

// One of the ranks, whichever it is, computes the parts of a micro-step, also of the one whose
// backward pass the reduction overlaps; the others wait for it in the reduction.
TEST_F(CudaEngineFailureTest, LaunchWithoutMemoryRunsInParts) {
  EngineCase test = kCase;
  test.updates = 5;
  const EngineChoice choice{.bucket_elements = 1};
  const auto plain = RunCudaRanks(test, {.choice = choice});
  for (int nth = 1; nth <= 10; nth += kSanitized ? 3 : 1) {  // odd and even
    SCOPED_TRACE(nth);
    ResetGpus(3);
    standin::SetDelays(static_cast<std::uint64_t>(nth), 50);
    // In update 3 all engines are made, as the result of update 1 is known. The graphs of the parts
    // may fail, too, in the middle of their recording.
    const auto fail = [nth](int rank) {
      EngineRunOptions options;
      if (rank != 1) return options;
      options.update = [nth](Engine& engine, Prefetcher& batches, const Plan& plan,
                             const UpdateSettings& settings) {
        if (settings.update == 2) {
          standin::FailCall("cudaGraphLaunch", nth, cudaErrorMemoryAllocation);
          if (nth % 2 == 0) {
            standin::FailCall("cudaEventRecordWithFlags", 2, cudaErrorMemoryAllocation);
          }
        }
        return RunUpdate(engine, batches, PlainAccumulation(plan), settings);
      };
      return options;
    };
    const auto found = RunCudaRanks(test, {.choice = choice, .options = fail});
    standin::SetDelays(0, 0);
    for (std::size_t rank = 0; rank < found.size(); ++rank) {
      ASSERT_OK(found[rank].run);
      ASSERT_OK(plain[rank].run);
      EXPECT_LE(Distance(found[rank].run->parameters, plain[rank].run->parameters), 1e-6);
      EXPECT_EQ(Distance(found[rank].run->parameters, found[0].run->parameters), 0);
    }
  }
}

// Rank 2 does not take part in the third update.
EngineRunOptions Hang(int rank) {
  if (rank != 2) return {};
  auto updates = std::make_shared<int>(0);
  return {.update = [updates](Engine& engine, Prefetcher& batches, const Plan& plan,
                              const UpdateSettings& settings) -> Status {
    if (++*updates == 3) {
      std::this_thread::sleep_for(kHang);
      return {ErrorKind::kUnavailable, "this rank hung"};
    }
    return RunUpdate(engine, batches, PlainAccumulation(plan), settings);
  }};
}

// A rank that stops to take part is waited for until the deadline, and named.
TEST_F(CudaEngineFailureTest, NamesHangingRank) {
  const auto outcomes = RunCudaRanks(kCase, {.bound = kBound, .options = Hang});
  ExpectAllFailInTime(outcomes);
  for (const int rank : {0, 1}) {
    EXPECT_THAT(outcomes[static_cast<std::size_t>(rank)].run,
                HasMessage(HasSubstr("rank 2 on node0 did not enter")));
  }
}

// The stages that wait for its messages, and those that wait for theirs.
TEST_F(CudaEngineFailureTest, HangingStageEndsAllStages) {
  EngineCase test = kCase;
  test.ranks = 1;
  test.stages = 3;
  const auto hang = [](int rank) -> EngineRunOptions {
    if (rank != 1) return {};
    return {.update = [](Engine&, Prefetcher&, const Plan&, const UpdateSettings&) -> Status {
      std::this_thread::sleep_for(kHang);
      return {ErrorKind::kUnavailable, "this stage hung"};
    }};
  };
  const auto outcomes = RunCudaRanks(test, {.bound = kBound, .options = hang});
  ExpectAllFailInTime(outcomes);
  // Both neighbours wait equally long; the first one to give up ends the other one.
  const auto names = [](const auto& outcome, const char* wait) {
    return ::testing::Matches(HasMessage(
        ::testing::AllOf(::testing::StartsWith(wait), HasSubstr("did not enter"))))(outcome.run);
  };
  EXPECT_TRUE(names(outcomes[0], "values to the stage after") ||
              names(outcomes[2], "values from the stage before"));
}

// Also where the ranks of a stage divide its state.
TEST_F(CudaEngineFailureTest, AsynchronousErrorOfStageEndsAllStages) {
  EngineCase whole = kCase;
  whole.ranks = 1;
  whole.stages = 3;
  EngineCase divided = kCase;
  divided.ranks = 2;
  divided.stages = 2;
  divided.shard = Sharding::kOptimizer;
  for (const EngineCase& test : {whole, divided}) {
    for (const int nth : {3, 40, 90}) {
      ResetGpus(test.ranks * test.stages);
      standin::BreakNccl(1, nth, ncclRemoteError);
      ExpectAllFailInTime(RunCudaRanks(test, {.bound = kBound}));
    }
  }
}

// Kernels that an abort cannot stop: the engine goes all the same, and leaves them its memory.
TEST(CudaEngineFailureDeathTest, DestructorDoesNotWaitForEndlessKernels) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto run = [] {
    alarm(300);
    ResetGpus(3);
    const auto outcomes = RunCudaRanks(kCase, {.bound = kBound, .windows = true, .options = Hang});
    const bool named = outcomes[0].run.status().message().find("rank 2 on node0 did not enter") !=
                       std::string::npos;
    _exit(named && standin::LiveBytes(0) > 0 ? 7 : 1);
  };
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace gaccd::tests
