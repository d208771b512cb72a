// On a GPU without memory for a launch: the micro-step runs in parts. One rank, over the stand-ins.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <iterator>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/train/update.h"
#include "tests/sanitized.h"
#include "tests/support/engine_on_gpu.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

// Before update 2, `fail` says what is to fail; counts the retries of the run.
Result<EngineRun> RunFailing(const EngineCase& test, const std::function<void()>& fail,
                             std::size_t* retries) {
  const auto update = [&](Engine& engine, Prefetcher& batches, const Plan& plan,
                          const UpdateSettings& settings) {
    if (settings.update == 1 && fail) fail();
    const ProgramGenerator program = SelectProgramGenerator(test.loss, /*update_sums=*/0);
    Status done = RunUpdate(engine, batches, program(plan), settings);
    *retries = engine.divided_steps().retries().size();
    return done;
  };
  return RunOn(Cuda(), test, {.update = update});
}

void ExpectSameTraining(const EngineRun& found, const EngineRun& expected) {
  ASSERT_EQ(found.results.size(), expected.results.size());
  for (std::size_t u = 0; u < found.results.size(); ++u) {
    EXPECT_EQ(found.results[u].samples, expected.results[u].samples);
    EXPECT_LE(std::abs(found.results[u].loss - expected.results[u].loss),
              1e-6 * std::abs(expected.results[u].loss));
  }
  EXPECT_LE(Distance(found.parameters, expected.parameters), 1e-6);
  EXPECT_EQ(found.evaluation.ranks, expected.evaluation.ranks);
}

const EngineCase kDropout{.name = "dropout",
                          .micro = 5,
                          .target = 23,
                          .updates = 4,
                          .tokens = 6,
                          .token_weights = true,
                          .dropout = 0.3};
const EngineCase kTexts{.name = "texts",
                        .micro = 5,
                        .target = 13,
                        .updates = 3,
                        .tail = 4,
                        .widths = {12, 3},
                        .texts = 24,
                        .cut = 8};

// The nth launch of update 2 fails once.
EngineRun RetriedAtLaunch(const EngineCase& test, int nth) {
  SCOPED_TRACE(StrCat(test.name, ", launch ", nth));
  std::size_t retries = 0;
  const auto fail = [&] { standin::FailCall("cudaGraphLaunch", nth, cudaErrorMemoryAllocation); };
  const auto found = RunFailing(test, fail, &retries);
  EXPECT_OK(found.status());
  EXPECT_EQ(retries, 1U);
  return ValueOrThrow(found);
}

TEST_F(CudaEngineTest, LaunchWithoutMemoryRunsInParts) {
  for (const EngineCase& test : {kDropout, kTexts}) {
    std::size_t none = 0;
    const auto plain = ValueOrThrow(RunFailing(test, nullptr, &none));
    EXPECT_EQ(none, 0U);
    const auto launches = static_cast<int>(ValueOrThrow(MakeCasePlan(test)).accum_steps());
    for (int nth = 1; nth <= launches; nth += kSanitized ? 3 : 1) {
      ExpectSameTraining(RetriedAtLaunch(test, nth), plain);
    }
  }
}

// Micro-steps that are not divided: the same bits.
TEST_F(CudaEngineTest, LaunchWithoutMemoryRunsWithRecomputedBlocks) {
  EngineCase micro{.name = "micro", .micro = 5, .target = 23, .updates = 4};
  micro.stats = BatchStatistics::kMicro;
  EngineCase contrastive{.name = "contrastive", .micro = 5, .target = 23, .updates = 4};
  contrastive.loss = LossKind::kContrastive;
  contrastive.evaluate = false;
  for (const EngineCase& test : {micro, contrastive}) {
    std::size_t none = 0;
    const auto plain = ValueOrThrow(RunFailing(test, nullptr, &none));
    for (const int nth : {1, 3, 5}) {
      const EngineRun found = RetriedAtLaunch(test, nth);
      ExpectSameTraining(found, plain);
      EXPECT_EQ(found.digest, plain.digest);
    }
  }
}

// The memory of the parts, or that of their graphs, may not be there either. Scratch and inputs
// are what is allocated last.
TEST_F(CudaEngineTest, UsesSmallerPartsIfMemoryIsShort) {
  std::size_t retries = 0;
  const auto plain = ValueOrThrow(RunFailing(kDropout, nullptr, &retries));
  std::int64_t before = 0;
  const auto fail_launch = [&] {
    before = standin::Count().mallocs;
    standin::FailCall("cudaGraphLaunch", 2, cudaErrorMemoryAllocation);
  };
  ASSERT_OK(RunFailing(kDropout, fail_launch, &retries));
  ASSERT_EQ(retries, 1U);
  const auto last = static_cast<int>(standin::Count().mallocs - before);
  const std::pair<const char*, int> calls[] = {
      {"cudaMalloc", 1},           {"cudaMalloc", last - 1},    {"cudaMalloc", last},
      {"cudaGraphInstantiate", 1}, {"cudaGraphInstantiate", 7}, {"cudaGraphUpload", 4}};
  for (std::size_t i = 0; i < std::size(calls); i += kSanitized ? 2 : 1) {
    const auto& [call, nth] = calls[i];
    SCOPED_TRACE(StrCat(call, " ", nth));
    const auto fail = [&, name = call, count = nth] {
      fail_launch();
      standin::FailCall(name, count, cudaErrorMemoryAllocation);
    };
    const auto found = RunFailing(kDropout, fail, &retries);
    ASSERT_OK(found);
    ExpectSameTraining(*found, plain);
    EXPECT_EQ(retries, 2U);
  }
}

TEST_F(CudaEngineTest, DoesNotRetryOtherLaunchFailures) {
  std::size_t retries = 0;
  const auto fail = [] { standin::FailCall("cudaGraphLaunch", 2, cudaErrorUnknown); };
  EXPECT_THAT(RunFailing(kDropout, fail, &retries), HasKind(ErrorKind::kUnavailable));
  EXPECT_EQ(retries, 0U);
}

TEST_F(CudaEngineTest, FailsWithAdviceWithoutMemory) {
  std::size_t retries = 0;
  const auto fail = [] {
    standin::FailCall("cudaGraphLaunch", 1, cudaErrorMemoryAllocation);
    for (const int nth : {1, 1, 1}) standin::FailCall("cudaMalloc", nth, cudaErrorMemoryAllocation);
  };
  EXPECT_THAT(RunFailing(kDropout, fail, &retries),
              IsError(ErrorKind::kConfig, "no memory on the GPU", "--micro-batch"));
}

}  // namespace
}  // namespace gaccd::tests
