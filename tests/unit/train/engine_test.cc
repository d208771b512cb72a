// The engine on a CPU, several ranks as threads: what travels with an update beside the gradients.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/train/update.h"
#include "tests/unit/train/engine_runs.h"

namespace gaccd::testing {
namespace {

using ::testing::HasSubstr;

// The run of every rank.
std::vector<Result<EngineRun>> RunRanks(const EngineCase& test,
                                        const EngineRunOptions& options = {}) {
  std::vector<Result<EngineRun>> runs(static_cast<std::size_t>(test.ranks),
                                      Status(ErrorKind::kInternal, "did not run"));
  (void)RunThreadRanks(test.ranks, {}, [&](Communicator& comm) {
    auto& run = runs[static_cast<std::size_t>(comm.rank())];
    run = RunEngine(comm, test, {}, options);
    return run.status();
  });
  return runs;
}

TEST(EngineTest, NewsAreSummedOverTheRanks) {
  for (const int ranks : {1, 3}) {
    for (const std::size_t elements : {0U, 1U, 40U}) {
      SCOPED_TRACE(StrCat(ranks, " ranks, ", elements, " elements"));
      const EngineCase test{
          .ranks = ranks, .micro = 5, .target = 33, .updates = 4, .news = elements};
      for (const auto& run : RunRanks(test)) {
        ASSERT_TRUE(run.ok()) << run.status().message();
        ASSERT_EQ(run->news.size(), 4U);
        for (std::size_t u = 0; u < run->news.size(); ++u) {
          ASSERT_EQ(run->news[u].size(), elements);
          for (std::size_t i = 0; i < elements; ++i) {
            double expected = 0;
            for (int rank = 0; rank < ranks; ++rank) {
              expected += NewsOf(rank, static_cast<std::int64_t>(u), i);
            }
            EXPECT_EQ(run->news[u][i], expected) << "update " << u + 1;
          }
        }
      }
    }
  }
}

TEST(EngineTest, NewsOfAnotherSizeAreRefused) {
  const EngineRunOptions options{
      .update = [](Engine& engine, Prefetcher&, const Plan& plan, UpdateSettings settings) {
        settings.samples = plan.effective_batch();
        settings.news = settings.news.first(2);
        return engine.Begin(settings);
      }};
  const auto runs = RunRanks({}, options);
  ASSERT_FALSE(runs[0].ok());
  EXPECT_EQ(runs[0].status().kind(), ErrorKind::kInternal);
  EXPECT_THAT(runs[0].status().message(), HasSubstr("news: expected 3 elements, found 2"));
}

// What repeating an update without a micro-batch must not do: keep the divisor of all samples, or
// leave it out on one rank and not tell the others.
TEST(EngineTest, DroppedMicroBatchesWithAWrongDivisorAreCaught) {
  for (const std::int64_t told : {33, 28, 29}) {
    const EngineRunOptions options{.update = [&](Engine& engine, Prefetcher& batches,
                                                 const Plan& plan, UpdateSettings settings) {
      settings.samples = told;
      const auto rank = static_cast<int>(settings.news[0] / 1000) - 1;
      return RunUpdate(engine, batches, plan, settings,
                       {.note = {}, .leave = {}, .drop = [rank](std::int64_t step) {
                          return rank == 1 && step == 1;  // of 4 + 4 + 3
                        }});
    }};
    for (const auto& run :
         RunRanks({.ranks = 3, .micro = 5, .target = 33, .updates = 1}, options)) {
      EXPECT_EQ(run.ok(), told == 29) << told;
      if (run.ok()) continue;
      EXPECT_EQ(run.status().kind(), ErrorKind::kInternal);
      EXPECT_THAT(run.status().message(), HasSubstr("rank 1: "));
    }
  }
}

}  // namespace
}  // namespace gaccd::testing
