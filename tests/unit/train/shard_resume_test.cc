// Trainings with a sharded optimiser on CPUs and on GPUs: saved, resumed on other ranks and
// unsharded, and back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "tests/sanitized.h"
#include "tests/support/shard_resume_fixture.h"

namespace gaccd::tests {
namespace {

TEST_F(ShardResumeTest, CheckpointsAndResultsEqualUnshardedRun) {
  const int saved_ranks = OnGpus() ? 3 : 5;
  const std::int64_t every = OnGpus() ? 4 : 8;
  const Sharding mode = OnGpus() ? Sharding::kNode : Sharding::kOptimizer;
  std::vector<Precision> precisions = {Precision::kF32};
  if (OnGpus() && !kSanitized) precisions.push_back(Precision::kFP16);
  for (const Precision precision : precisions) {
    SCOPED_TRACE(Name(precision));
    std::filesystem::remove_all(ckpt());
    const Job unsharded_job = Normalized(Sharding::kNone, precision);
    const auto plain = ValueOrThrow(Train(unsharded_job, saved_ranks, every, "never"));
    const std::string unsharded = StrCat(folder_, "/unsharded-", Name(precision));
    std::filesystem::rename(ckpt(), unsharded);
    const auto sharded = ValueOrThrow(
        Train(Normalized(Sharding::kOptimizer, precision), saved_ranks, every, "never"));
    EXPECT_EQ(sharded.weights, plain.weights);
    EXPECT_EQ(sharded.averaged, plain.averaged);
    EXPECT_EQ(sharded.evals, plain.evals);
    EXPECT_EQ(sharded.steps, plain.steps);
    ExpectSameFiles(ckpt(), unsharded, saved_ranks, {every, 2 * every, OnGpus() ? 11 : 24});
    // Either continues the other's: what is right on so many ranks an unsharded run knows.
    const std::string other = unsharded + CheckpointPath(every).substr(ckpt().size());
    for (const int ranks : OnGpus() ? std::vector{2, 3} : std::vector{1, 3, 5, 7}) {
      SCOPED_TRACE(ranks);
      const auto expected = ValueOrThrow(Train(unsharded_job, ranks, 0, CheckpointPath(every)));
      // On CPUs also its own.
      for (const std::string& from : {other, CheckpointPath(every)}) {
        if (OnGpus() && from != other) continue;
        const auto resumed = ValueOrThrow(Train(Normalized(mode, precision), ranks, 0, from));
        EXPECT_EQ(resumed.first, every);
        EXPECT_EQ(resumed.weights, expected.weights);
        EXPECT_EQ(resumed.averaged, expected.averaged);
        EXPECT_EQ(resumed.evals, expected.evals);
      }
      if (ranks != saved_ranks) continue;
      EXPECT_EQ(expected.weights, plain.weights);
      EXPECT_EQ(expected.averaged, plain.averaged);
    }
  }
}

TEST_F(ShardResumeTest, ContinuesInsideUpdateWithSameMicroSteps) {
  const int ranks = OnGpus() ? 2 : 3;
  const auto plain = ValueOrThrow(Train(MediumJob(Sharding::kNone), ranks, 0, "never"));
  for (const Place& stop : {Place{1, 1}, Place{4, 2}}) {
    if (OnGpus() && stop.update == 1) continue;
    std::filesystem::remove_all(ckpt());
    ASSERT_THAT(Train(MediumJob(Sharding::kOptimizer), ranks, 100, "never", stop),
                HasKind(ErrorKind::kTempFail));
    for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer, Sharding::kNodeOptimizer}) {
      const auto resumed = ValueOrThrow(Train(MediumJob(shard), ranks, 0, "auto"));
      EXPECT_EQ(resumed.first, stop.update - 1);
      EXPECT_EQ(resumed.weights, plain.weights) << stop.update << ", " << stop.done;
      EXPECT_EQ(resumed.averaged, plain.averaged);
    }
  }
}

}  // namespace
}  // namespace gaccd::tests
