// What a training does about numbers that are wrong: an update that is not finite is explained,
// left out or repeated without what made it so; replicas that differ are found; the slow rank is
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/train/trainer.h"
#include "tests/support/engine_runs.h"
#include "tests/support/file_util.h"
#include "tests/support/rank_training.h"
#include "tests/support/status_matchers.h"
#include "tests/support/step_events.h"

namespace gaccd {
namespace {

using tests::Distance;
using tests::StepValues;
using tests::Train;
using tests::Trained;
using tests::Training;

constexpr std::int64_t kFeatures = 10;
constexpr std::int64_t kTargets = 2;

class GuardsTest : public ::testing::Test {
 protected:
  // The same with NaN in the features of some.
  Job JobWithNan(std::int64_t samples, const std::set<std::int64_t>& nan) {
    Job job = MakeJob(samples, {});
    auto& source = std::get<NpySpec>(job.data.train);
    std::vector<float> features(static_cast<std::size_t>(samples * kFeatures), 0.5F);
    for (const std::int64_t s : nan) {
      features[static_cast<std::size_t>(s * kFeatures)] = std::nanf("");
    }
    source.features = folder_.Write("with_nan", NpyFloats(features, kFeatures));
    return job;
  }

  // So many samples; those of `huge` have finite features that overflow in the
  // gradient, those of `left_out` are not there.
  Job MakeJob(std::int64_t samples, const std::set<std::int64_t>& huge,
              const std::set<std::int64_t>& left_out = {}) {
    std::vector<float> features;
    std::vector<float> targets;
    for (std::int64_t s = 0; s < samples; ++s) {
      if (left_out.contains(s)) continue;
      for (std::int64_t f = 0; f < kFeatures; ++f) {
        const float value = std::sin(static_cast<float>(s * kFeatures + f));
        features.push_back(huge.contains(s) ? 1e30F * (value + 2) : value);
      }
      for (std::int64_t t = 0; t < kTargets; ++t) {
        targets.push_back(std::cos(static_cast<float>(3 * s + t)));
      }
    }
    Job job;
    job.name = "guards";
    job.model = {.layer = {{"fc1", LinearSpec{kFeatures, 16, true}},
                           {"relu", ReluSpec{}},
                           {"fc2", LinearSpec{16, kTargets, true}}},
                 .loss = MeanSquaredErrorSpec{}};
    job.data.train =
        NpySpec{.features = folder_.Write(StrCat("f", files_), NpyFloats(features, kFeatures)),
                .targets = folder_.Write(StrCat("t", files_), NpyFloats(targets, kTargets))};
    ++files_;
    job.data.shuffle = false;
    job.batch.micro = 4;
    job.optimizer = {.lr = 0.2, .kind = SgdSpec{}};
    job.epochs = 1;
    return job;
  }

  static void ExpectAllWell(const Trained& trained) {
    for (std::size_t r = 0; r < trained.status.size(); ++r) {
      ASSERT_TRUE(trained.status[r].ok()) << trained.status[r].message();
      EXPECT_EQ(Distance(trained.weights[r], trained.weights[0]), 0) << "rank " << r;
    }
  }

  TempFolder folder_;
  int files_ = 0;
};

// How far training has come from where it began: what a wrong divisor shows in.
double StepDistance(const std::vector<float>& found, const std::vector<float>& expected,
                    const std::vector<float>& start) {
  std::vector<float> a(found.size());
  std::vector<float> b(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    a[i] = found[i] - start[i];
    b[i] = expected[i] - start[i];
  }
  return Distance(a, b);
}

TEST_F(GuardsTest, StopNamesRankMicroBatchLayerAndSamples) {
  Job job = MakeJob(33, {20});
  job.batch.target = 33;  // rank 1 takes samples 11 to 21 as 4 + 4 + 3
  for (const Status& status : Train(job, {}).status) {
    EXPECT_THAT(status, IsError(ErrorKind::kNoRequeue, "update 1: training diverged",
                                "rank 1 on node0: micro-batch 3 of 3: the gradient of "
                                "fc1.weight is not finite; samples 19, 20, 21"));
  }
}

// The others train as if the samples of that update were not there; AdamW's count of updates and
// the average of the weights, too.
TEST_F(GuardsTest, SkippedUpdatesChangeNothing) {
  for (const OptimizerSpec& optimizer :
       {OptimizerSpec{.lr = 0.2, .kind = SgdSpec{.momentum = 0.9}},
        OptimizerSpec{.lr = 0.01, .kind = AdamWSpec{}},
        OptimizerSpec{.lr = 0.2, .kind = SgdSpec{}, .ema = EmaSpec{0.75}}}) {
    Job job = MakeJob(44, {26});
    job.batch.target = 11;
    job.optimizer = optimizer;
    const Trained found = Train(job, {.guards = {.on_nonfinite = OnNonfinite::kSkipUpdate}});
    ExpectAllWell(found);
    EXPECT_EQ(found.summary[2].updates, 4);
    EXPECT_EQ(found.summary[2].skipped, 1);
    EXPECT_EQ(found.summary[2].samples, 33) << "an update that is left out takes none";

    Job without = MakeJob(44, {}, {22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32});
    without.batch.target = 11;
    without.optimizer = optimizer;
    const Trained expected = Train(without, {});
    ExpectAllWell(expected);
    EXPECT_EQ(expected.summary[0].updates, 3);
    EXPECT_EQ(Distance(found.weights[0], expected.weights[0]), 0);
  }
}

// Loss and gradient of the update are finite, what it makes of a parameter is not. No next update
// shows it, and none could be skipped for it.
TEST_F(GuardsTest, UpdateThatOverflowsParametersEndsRun) {
  for (const OnNonfinite policy : {OnNonfinite::kStop, OnNonfinite::kSkipUpdate}) {
    for (const Sharding shard : {Sharding::kNone, Sharding::kOptimizer}) {
      for (const std::int64_t target : {36, 6}) {  // one update, or 6
        Job job = MakeJob(36, {});
        job.batch.target = target;
        job.shard = shard;
        job.optimizer.lr = 1e40;
        for (const Status& status : Train(job, {.guards = {.on_nonfinite = policy}}).status) {
          EXPECT_THAT(status,
                      IsError(ErrorKind::kNoRequeue, target == 36 ? "after update 1" : "update 2",
                              "training diverged: the optimiser has made fc1.weight not finite",
                              "optimizer.lr is 1e+40"));
        }
      }
    }
  }
}

TEST_F(GuardsTest, StopsAfterTooManyConsecutiveSkips) {
  std::set<std::int64_t> all;
  for (std::int64_t s = 0; s < 36; ++s) all.insert(s);
  Job job = MakeJob(36, all);
  job.batch.target = 3;
  for (const OnNonfinite policy : {OnNonfinite::kSkipUpdate, OnNonfinite::kDropMicroBatch}) {
    const Trained found = Train(job, {.guards = {.on_nonfinite = policy}});
    for (std::size_t r = 0; r < 3; ++r) {
      EXPECT_THAT(found.status[r],
                  IsError(ErrorKind::kNoRequeue, "11 updates in a row were not finite"));
      EXPECT_EQ(found.summary[r].updates, 10);
      EXPECT_EQ(found.summary[r].skipped, 10);
    }
  }
  all.erase(30);  // update 11 is well, and the count begins again
  all.erase(31);
  all.erase(32);
  job = MakeJob(36, all);
  job.batch.target = 3;
  const Trained found = Train(job, {.guards = {.on_nonfinite = OnNonfinite::kSkipUpdate}});
  ExpectAllWell(found);
  EXPECT_EQ(found.summary[0].skipped, 11);
}

// One update of 33 samples, of which two micro-batches are left out: the same as one of the others,
// with their own divisor, on any ranks.
TEST_F(GuardsTest, DroppedMicroBatchesKeepMeanOfOthers) {
  std::vector<float> start;
  const auto keep_start = [&](int rank, Trainer& trainer) -> Status {
    if (rank != 0) return Status::Ok();
    GACCD_ASSIGN_OR_RETURN(start, trainer.Parameters());
    return Status::Ok();
  };
  const auto clipped_in_warmup = [](Job job) {
    job.clip_norm = 0.1;
    job.schedule.warmup_updates = 4;
    return job;
  };
  Job without = clipped_in_warmup(MakeJob(33, {}, {3, 20}));
  without.batch.target = 31;
  without.batch.micro = 31;
  const Trained expected = Train(without, {.ranks = 1, .before = keep_start});
  ExpectAllWell(expected);
  for (const int ranks : {1, 3, 5}) {
    Job job = clipped_in_warmup(MakeJob(33, {3, 20}));
    job.batch.target = 33;
    job.batch.micro = 1;  // a micro-batch is a sample
    const Trained found =
        Train(job, {.ranks = ranks, .guards = {.on_nonfinite = OnNonfinite::kDropMicroBatch}});
    ExpectAllWell(found);
    EXPECT_EQ(found.summary[0].samples, 31);
    EXPECT_EQ(found.summary[0].skipped, 0);
    EXPECT_LE(StepDistance(found.weights[0], expected.weights[0], start), 1e-5) << ranks;
  }
}

// Whole micro-batches go, and the updates after it see nothing of it.
TEST_F(GuardsTest, DropsInTheMiddleOfTraining) {
  Job job = MakeJob(99, {53});  // update 2, rank 1, samples 52, 53, 54 of 44 to 54
  job.batch.target = 33;
  job.optimizer = {.lr = 0.01, .kind = AdamWSpec{}};
  const Trained found = Train(job, {.guards = {.on_nonfinite = OnNonfinite::kDropMicroBatch}});
  ExpectAllWell(found);
  EXPECT_EQ(found.summary[1].samples, 96);
  EXPECT_EQ(found.summary[1].updates, 3);
  for (const float weight : found.weights[0]) ASSERT_TRUE(std::isfinite(weight));
}

// Batch norms of micro-batches normalise the huge sample too: its variance alone does not fit. It
// goes with its micro-batch, and the statistics are those of the others.
TEST_F(GuardsTest, DroppedMicroBatchAddsNoStatistics) {
  const auto normalised = [](Job job, std::int64_t target) {
    job.model.layer.insert(
        job.model.layer.begin() + 1,
        {"bn", BatchNormSpec{.num_features = 16, .stats = BatchStatistics::kMicro}});
    job.batch.target = target;
    return job;
  };
  const Trained expected = Train(normalised(MakeJob(32, {}, {8, 9, 10, 11}), 28), {.ranks = 1});
  const Trained found =
      Train(normalised(MakeJob(32, {9}), 32),
            {.ranks = 2, .guards = {.on_nonfinite = OnNonfinite::kDropMicroBatch}});
  ExpectAllWell(expected);
  ExpectAllWell(found);
  EXPECT_EQ(found.summary[0].samples, 28);
  EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 1e-6);
}

// Update 3 is repeated without its last sample, and drops the units that it dropped before.
TEST_F(GuardsTest, RepeatedUpdateKeepsDropout) {
  const auto with_dropout = [](Job job) {
    job.model.layer.insert(job.model.layer.begin() + 2, {"drop", DropoutSpec{0.5}});
    job.batch.target = 11;
    job.batch.micro = 1;
    return job;
  };
  const Trained found = Train(with_dropout(MakeJob(33, {32})),
                              {.guards = {.on_nonfinite = OnNonfinite::kDropMicroBatch}});
  const Trained expected = Train(with_dropout(MakeJob(33, {}, {32})), {});
  ExpectAllWell(found);
  ExpectAllWell(expected);
  EXPECT_EQ(found.summary[0].samples, 32);
  EXPECT_LE(Distance(found.weights[0], expected.weights[0]), 1e-5);
}

TEST_F(GuardsTest, ReplacesDamagedRecordsIndependentlyOfTopology) {
  Job job = JobWithNan(33, {2, 30});
  job.batch.target = 11;
  for (const Status& status : Train(job, {}).status) EXPECT_THAT(status, HasKind(ErrorKind::kData));
  const BadRecordRules skip{.policy = OnBadRecord::kSkip, .quota = 2, .seed = 5};
  const Trained one = Train(job, {.ranks = 1, .bad_records = skip});
  const Trained five = Train(job, {.ranks = 5, .bad_records = skip});
  ExpectAllWell(one);
  ExpectAllWell(five);
  EXPECT_EQ(five.summary[0].samples, 33);
  EXPECT_LE(Distance(five.weights[0], one.weights[0]), 1e-5);
}

// A node that reads other bytes than the others, as here with a file of its own.
TEST_F(GuardsTest, DamageSeenByOneRankEndsAll) {
  const Job damaged = JobWithNan(33, {2});
  Job job = MakeJob(33, {});
  job.batch.target = 11;
  const Training training{.bad_records = {.policy = OnBadRecord::kSkip, .quota = 9, .seed = 5}};
  Trained trained(training.ranks);
  (void)RunThreadRanks(training.ranks, {}, [&](Communicator& comm) {
    Job mine = job;
    if (comm.rank() == 2) mine.data.train = damaged.data.train;
    trained.status[static_cast<std::size_t>(comm.rank())] =
        tests::TrainOnRank(comm, mine, training, {}, nullptr, &trained);
    return Status::Ok();
  });
  for (const Status& status : trained.status) {
    EXPECT_THAT(status, IsError(ErrorKind::kConfig, "rank 2 on node0 has '1 records, sum"));
  }
}

TEST_F(GuardsTest, NamesDifferingReplica) {
  Job job = MakeJob(33, {});
  job.batch.target = 11;
  const auto flip = [](int rank, Trainer& trainer) -> Status {
    if (rank != 1) return Status::Ok();
    GACCD_ASSIGN_OR_RETURN(std::vector<float> weights, trainer.Parameters());
    weights[5] = std::bit_cast<float>(std::bit_cast<std::uint32_t>(weights[5]) ^ 1U);
    return trainer.engine().SetParameters(weights);
  };
  const Trained found = Train(job, {.guards = {.digest_every = 2}, .before = flip});
  for (std::size_t r = 0; r < 3; ++r) {
    const Status& status = found.status[r];
    ASSERT_FALSE(status.ok());
    EXPECT_TRUE(found.summary[r].failed_together) << "reported once";
    EXPECT_THAT(status,
                IsError(ErrorKind::kInternal, "after update 2: the digest of the parameters",
                        "2 of 3 ranks (rank 0 on node0)", ", rank 1 on node0 has '"));
    EXPECT_THAT(status, HasMessage(::testing::Not(HasSubstr("rank 2"))));
  }
  // Nobody looks.
  const Trained unseen = Train(job, {.before = flip});
  EXPECT_TRUE(unseen.status[0].ok());
  EXPECT_GT(Distance(unseen.weights[1], unseen.weights[0]), 0);
}

TEST_F(GuardsTest, EventsHaveDigestsAndSlowRank) {
  Job job = MakeJob(60, {25});
  job.batch.target = 12;
  const auto train = [&](const std::string& name) {
    const std::string run_dir = folder_.Path(name);
    ExpectAllWell(
        Train(job, {.guards = {.on_nonfinite = OnNonfinite::kSkipUpdate, .digest_every = 2},
                    .run_dir = run_dir}));
    return run_dir;
  };
  const std::string run_dir = train("one");
  const std::vector<std::string> digests = StepValues(run_dir, "digest");
  ASSERT_EQ(digests.size(), 5U);
  for (const std::size_t u : {0U, 2U}) EXPECT_EQ(digests[u], "");
  EXPECT_EQ(digests[1].size(), 16U);
  EXPECT_NE(digests[3], digests[1]);
  EXPECT_NE(digests[4], digests[3]);  // the last update always has one
  EXPECT_NE(digests[4], "");
  EXPECT_EQ(StepValues(train("two"), "digest"), digests);

  EXPECT_EQ(StepValues(run_dir, "skipped"),
            (std::vector<std::string>{"false", "false", "true", "false", "false"}));
  for (const char* key :
       {"straggler_rank", "straggler_host", "straggler_phase", "straggler_ratio", "wait_s"}) {
    const std::vector<std::string> values = StepValues(run_dir, key);
    ASSERT_EQ(values.size(), 5U);
    EXPECT_EQ(values[0], "");  // nobody knew any time yet
    for (std::size_t u = 1; u < 5; ++u) EXPECT_NE(values[u], "") << key << ", update " << u + 1;
  }
  const std::string phase = StepValues(run_dir, "straggler_phase")[3];
  EXPECT_TRUE(phase == "data" || phase == "compute" || phase == "stopped") << phase;
  EXPECT_EQ(StepValues(run_dir, "straggler_host")[3], "node0");
}

}  // namespace
}  // namespace gaccd
