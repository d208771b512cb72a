// Trainings whose ranks take samples by their speeds: the same updates as with equal loads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "daemon/config/job_text.h"
#include "daemon/launch/launch.h"
#include "daemon/plan/speeds.h"
#include "daemon/telemetry/log.h"
#include "daemon/train/rebalancer.h"
#include "tests/support/engine_runs.h"
#include "tests/support/rank_training.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/slow_data.h"
#include "tests/support/small_regression.h"
#include "tests/support/status_matchers.h"
#include "tests/support/step_events.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;
using tests::Distance;
using tests::EventValues;
using tests::MakePlan;
using tests::SlowData;
using tests::StepValues;
using tests::Train;
using tests::Trained;

// 230 samples an epoch in updates of 37, the last of 8.
Job UnevenJob() {
  Job job = tests::SmallRegression();
  job.batch.target = 37;
  job.batch.micro = 4;
  job.optimizer = {.lr = 0.05, .kind = SgdSpec{.momentum = 0.9}};
  job.epochs = 3;
  return job;
}

TEST(SpeedTest, LoadsBySpeedTrainSameWeights) {
  const Job job = UnevenJob();
  const TempFolder equal_dir;
  const Trained equal = Train(job, {.ranks = 4, .run_dir = equal_dir.path()});
  const std::vector<std::vector<double>> lists{
      {1, 1, 0.6, 0.6}, {0.3, 1, 0.7, 0.11}, {1, 0.001, 1, 1}, {5, 1, 1, 1}};
  double worst_weights = 0;
  double worst_loss = 0;
  for (const std::vector<double>& speeds : lists) {
    const TempFolder folder;
    const Trained uneven = Train(job, {.ranks = 4, .run_dir = folder.path(), .speeds = speeds});
    for (std::size_t rank = 0; rank < 4; ++rank) {
      ASSERT_TRUE(uneven.status[rank].ok()) << uneven.status[rank].message();
      EXPECT_EQ(uneven.summary[rank].samples, 3 * 230);
      EXPECT_EQ(uneven.summary[rank].updates, equal.summary[rank].updates);
      EXPECT_EQ(uneven.weights[rank], uneven.weights[0]);
    }
    worst_weights = std::max(worst_weights, Distance(uneven.weights[0], equal.weights[0]));
    EXPECT_EQ(StepValues(folder.path(), "samples"), StepValues(equal_dir.path(), "samples"));
    const std::vector<std::string> losses = StepValues(folder.path(), "loss");
    const std::vector<std::string> expected = StepValues(equal_dir.path(), "loss");
    ASSERT_EQ(losses.size(), expected.size());
    for (std::size_t u = 0; u < losses.size(); ++u) {
      worst_loss =
          std::max(worst_loss, std::abs(std::stod(losses[u]) / std::stod(expected[u]) - 1));
    }
  }
  std::printf("  weights %.2g loss %.2g\n", worst_weights, worst_loss);
  EXPECT_LT(worst_weights, 1e-6);
  EXPECT_LT(worst_loss, 1e-6);
}

// As the program makes its plan: hosts by their names.
TEST(SpeedTest, PlanOfWorldHasHosts) {
  Job job = UnevenJob();
  const auto plan_of = [&](const std::string& speed) {
    Flags flags;
    flags.speed = speed;
    std::string loads;
    const Status status =
        RunThreadRanks(6, {.comm = {}, .ranks_per_node = 2}, [&](Communicator& comm) -> Status {
          GACCD_ASSIGN_OR_RETURN(const Plan plan, PlanForWorld(job, flags, comm));
          if (comm.rank() == 0) loads = StrCat(LoadsText(plan), " ", SpeedsText(plan, 100));
          return Status::Ok();
        });
    return status.ok() ? loads : status.message();
  };
  EXPECT_EQ(plan_of("node[0,2]:1,node1:0.25"), "1x9,3x8,2x2 2x1,2x0.25,2x1");
  EXPECT_EQ(plan_of("node1:0.25"), "1x9,3x8,2x2 2x1,2x0.25,2x1");
  EXPECT_EQ(plan_of("node[0-2]:0.25"), "1x7,5x6 6x1");
  EXPECT_THAT(plan_of("node3:0.25"), HasSubstr("names host node3, on which no rank runs"));
}

// Ranks with different lists do not begin: their flags differ. Were they to, the audit finds the
// wrong number of samples in the first update.
TEST(SpeedTest, DetectsRankWithOtherList) {
  const Job job = UnevenJob();
  Flags one;
  one.speed = "n[1-2]:1,n[3-4]:0.6";
  Flags other;
  other.speed = "n[1-3]:1,n4:0.6";
  EXPECT_NE(JobDigest(job, one), JobDigest(job, other));

  std::vector<Status> found(4);
  const Status status = RunThreadRanks(4, {}, [&](Communicator& comm) -> Status {
    const std::vector<double> speeds =
        comm.rank() == 2 ? std::vector{1.0, 1.0, 1.0, 0.6} : std::vector{1.0, 1.0, 0.6, 0.6};
    found[static_cast<std::size_t>(comm.rank())] = [&]() -> Status {
      GACCD_ASSIGN_OR_RETURN(const Plan plan, MakePlan(job, 4, speeds));
      GACCD_ASSIGN_OR_RETURN(auto inputs, tests::OpenInputs(comm, job, plan));
      GACCD_ASSIGN_OR_RETURN(auto trainer, Trainer::Make(comm, std::move(inputs)));
      GACCD_ASSIGN_OR_RETURN(auto reporter, RunReporter::Start(comm, {.quiet = true}));
      TrainingSummary summary;
      return trainer->Run(*reporter, &summary);
    }();
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
  for (const Status& one_rank : found) {
    EXPECT_THAT(one_rank, IsError(ErrorKind::kInternal, "37"));
  }
}

class SpeedResumeTest : public tests::ResumeTest {};

TEST_F(SpeedResumeTest, OtherSpeedContinuesWithSameSamples) {
  const Job job = tests::SmallJob();
  const auto equal = Train(job, 2, 0, "never");
  ASSERT_TRUE(equal.ok()) << equal.status().message();
  speeds_ = {1, 0.5};
  const auto whole = Train(job, 2, 0, "never");
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  EXPECT_LT(Distance(whole->weights, equal->weights), 1e-5);

  const auto stopped = Train(job, 2, 100, "never", {.update = 3, .done = 2});
  EXPECT_THAT(stopped, HasKind(ErrorKind::kTempFail));
  const auto same = Train(job, 2, 0, "auto");
  ASSERT_TRUE(same.ok()) << same.status().message();
  EXPECT_EQ(same->first, 2);
  EXPECT_EQ(same->warnings, "");
  EXPECT_EQ(same->weights, whole->weights);

  speeds_ = {0.5, 1};
  const auto other = Train(job, 2, 0, "auto");
  ASSERT_TRUE(other.ok()) << other.status().message();
  EXPECT_THAT(other->warnings, HasSubstr("the speeds of the ranks"));
  EXPECT_LT(Distance(other->weights, equal->weights), 1e-5);
  EXPECT_EQ(other->summary.samples, equal->summary.samples);
}

// Too short to be measured anew: 25 updates.
TEST_F(SpeedResumeTest, ReusesMeasuredLoadsOnSameHosts) {
  const Job job = tests::SmallJob();
  speeds_ = {1, 0.25};
  const auto whole = Train(job, 2, 8, "never");
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  ASSERT_THAT(Train(job, 2, 100, "never", {.update = 3, .done = 2}), HasKind(ErrorKind::kTempFail));
  speeds_.clear();
  for (const bool always : {false, true}) {
    loads_ = {.once = !always, .always = always};
    const auto inside = Train(job, 2, 0, "auto");  // the window continues
    ASSERT_TRUE(inside.ok()) << inside.status().message();
    EXPECT_EQ(inside->first, 2);
    EXPECT_EQ(inside->loads, whole->loads);
    EXPECT_EQ(inside->warnings, "");
    EXPECT_EQ(inside->weights, whole->weights);
  }
  ranks_per_node_ = 1;
  const auto elsewhere = Train(job, 2, 0, CheckpointPath(8));
  ASSERT_TRUE(elsewhere.ok()) << elsewhere.status().message();
  EXPECT_EQ(elsewhere->loads, LoadsText(*MakePlan(job, 2)));
  EXPECT_EQ(elsewhere->warnings,
            "the loads of the checkpoint are not used: its ranks ran on 2xnode0, and these "
            "run on 1xnode0,1xnode1\n");
  ranks_per_node_ = 0;
  loads_ = {};
  EXPECT_EQ(Train(job, 2, 0, CheckpointPath(8))->loads, LoadsText(*MakePlan(job, 2)))
      << "advice alone";
}

// Speeds of 1, 1, 0.5 and 0.25, with noise, and a pause of each rank.
std::vector<double> MakeTimes(const Plan& plan, int update) {
  const double seconds[] = {1e-3, 1e-3, 2e-3, 4e-3};
  std::vector<double> busy;
  for (int rank = 0; rank < 4; ++rank) {
    const double noise = 1 + 0.001 * ((update * 7 + rank * 3) % 5 - 2);
    const double pause = update % 11 == rank ? 3 : 0;
    busy.push_back(pause + noise * seconds[rank] * static_cast<double>(plan.Load(rank)));
  }
  return busy;
}

TEST(RebalancerTest, ConvergesToSpeeds) {
  Plan plan = *Plan::Make({.nodes = 4, .gpus_per_node = 1, .micro_batch = 8, .target_batch = 44});
  Rebalancer rebalancer(4, /*once=*/false, /*always=*/true);
  int changes = 0;
  for (int update = 0; update < 200; ++update) {
    auto better = rebalancer.Add(MakeTimes(plan, update), plan);
    ASSERT_TRUE(better.ok()) << better.status().message();
    if (!*better) continue;
    ++changes;
    EXPECT_EQ(update, Rebalancer::kWarmUp + Rebalancer::kUpdates - 1);
    EXPECT_TRUE((*better)->apply);
    EXPECT_NEAR((*better)->gain, 44.0 / 16, 0.05);
    plan = (*better)->plan;
  }
  EXPECT_EQ(changes, 1);
  EXPECT_EQ(LoadsText(plan), "2x16,1x8,1x4");
}

TEST(RebalancerTest, AdvisesOnceAndUsesMeasuredSpeedsOnce) {
  const Plan plan =
      *Plan::Make({.nodes = 4, .gpus_per_node = 1, .micro_batch = 8, .target_batch = 44});
  for (const bool once : {false, true}) {
    Rebalancer rebalancer(4, once, /*always=*/false);
    std::vector<bool> applied;
    for (int update = 0; update < 200; ++update) {
      const auto better = rebalancer.Add(MakeTimes(plan, update), plan);  // never takes it
      if (*better) applied.push_back((*better)->apply);
    }
    EXPECT_EQ(applied, once ? (std::vector{true, false}) : std::vector{false});
  }
}

// Half of the updates of rank 1 are three times as long: its speed is that of these.
TEST(RebalancerTest, UsesLowerMedianOfSpeeds) {
  const Plan plan =
      *Plan::Make({.nodes = 2, .gpus_per_node = 1, .micro_batch = 8, .target_batch = 40});
  Rebalancer rebalancer(2, /*once=*/true, /*always=*/false);
  std::string loads;
  for (int update = 0; update < Rebalancer::kWarmUp + Rebalancer::kUpdates; ++update) {
    const auto better = rebalancer.Add(std::vector{1.0, update % 2 == 0 ? 1.0 : 3.0}, plan);
    ASSERT_TRUE(better.ok()) << better.status().message();
    if (*better) loads = LoadsText((*better)->plan);
  }
  EXPECT_EQ(loads, "1x30,1x10");
}

// Given speeds are in any unit, measured ones relative to the fastest rank.
TEST(RebalancerTest, RankWithoutSamplesIsNotFast) {
  const Plan plan = *Plan::Make(
      {.nodes = 2, .gpus_per_node = 1, .micro_batch = 8, .target_batch = 8, .speeds = {1000, 50}});
  ASSERT_EQ(LoadsText(plan), "1x8,1x0");
  Rebalancer rebalancer(2, true, true);
  for (int update = 0; update < 100; ++update) {
    EXPECT_FALSE(*rebalancer.Add(std::vector{1.0, 0.0}, plan)) << update;
  }
}

// Busy seconds of every rank: its seconds a sample, and the same for each micro-step.
std::vector<double> TimesBy(const Plan& plan, std::span<const double> of_sample, double of_step) {
  std::vector<double> busy;
  for (std::int64_t rank = 0; rank < std::ssize(of_sample); ++rank) {
    busy.push_back(of_sample[static_cast<std::size_t>(rank)] *
                       static_cast<double>(plan.Load(rank)) +
                   of_step * static_cast<double>(plan.accum_steps()));
  }
  return busy;
}

// Ranks slower than kMinSpeedMeasured, rightly given: loads that treat them as faster are worse.
TEST(RebalancerTest, DoesNotWorsenLoadsOfVerySlowRanks) {
  const Plan plan = *Plan::Make({.nodes = 5,
                                 .gpus_per_node = 1,
                                 .micro_batch = 100,
                                 .target_batch = 120,
                                 .speeds = {1, 0.05, 0.05, 0.05, 0.05}});
  const std::vector<double> of_sample = {1, 20, 20, 20, 20};
  Rebalancer rebalancer(5, true, true);
  for (int update = 0; update < 100; ++update) {
    EXPECT_FALSE(*rebalancer.Add(TimesBy(plan, of_sample, 0), plan)) << update;
  }
}

// Equal loads take one micro-step, those by speed two, which cost more than they save.
TEST(RebalancerTest, RevertsUselessChangePermanently) {
  const Plan equal =
      *Plan::Make({.nodes = 2, .gpus_per_node = 1, .micro_batch = 10, .target_batch = 20});
  ASSERT_EQ(equal.accum_steps(), 1);
  Plan plan = equal;
  std::vector<std::string> loads;
  Rebalancer rebalancer(2, true, true);
  for (int update = 0; update < 200; ++update) {
    const auto better = rebalancer.Add(TimesBy(plan, std::vector{1.0, 3.0}, 30), plan);
    if (!*better || !(*better)->apply) continue;
    plan = (*better)->plan;
    loads.push_back(LoadsText(plan));
  }
  EXPECT_THAT(loads, testing::ElementsAre(testing::Ne(LoadsText(equal)), LoadsText(equal)));
}

// A gain below kMinGain is noise.
TEST(RebalancerTest, NearlyEqualRanksKeepLoads) {
  const Plan plan =
      *Plan::Make({.nodes = 2, .gpus_per_node = 1, .micro_batch = 50, .target_batch = 100});
  Rebalancer rebalancer(2, true, true);
  for (int update = 0; update < 100; ++update) {
    EXPECT_FALSE(*rebalancer.Add(std::vector{1.0, 1.08}, plan)) << update;
  }
}

// Stopped inside an update after the loads have changed: the checkpoint has the plan of its update.
TEST_F(SpeedResumeTest, CheckpointAfterLoadChangeIsValid) {
  Job job = tests::SmallJob();
  job.data.eval.reset();
  job.epochs = 6;
  const auto equal = Train(job, 2, 0, "never");
  ASSERT_TRUE(equal.ok()) << equal.status().message();
  std::atomic<std::int64_t> reads = 0;
  loads_ = {.always = true};
  data_ = [&](int rank) {
    return std::make_unique<SlowData>(std::move(OpenTrainingData(job)->train),
                                      tests::ReadTime(rank == 1), &reads);
  };
  const auto stopped = Train(job, 2, 100, "never", {.update = 44, .done = 1});
  EXPECT_THAT(stopped, HasKind(ErrorKind::kTempFail));
  const auto changed = EventValues(folder_, "rebalance", "step");
  ASSERT_FALSE(changed.empty());
  loads_ = {};
  data_ = nullptr;
  const auto resumed = Train(job, 2, 0, "auto");
  ASSERT_TRUE(resumed.ok()) << resumed.status().message();
  EXPECT_GT(resumed->first,
            std::stoll(changed[0]));  // 43, or less where a tail has two micro-steps
  EXPECT_LT(Distance(resumed->weights, equal->weights), 1e-5);
}

// The times of the ranks are real; rank 2 reads slowly.
TEST(SpeedTest, MeasuredSpeedsChangeLoadsOnly) {
  Job job = UnevenJob();
  job.data.eval.reset();
  job.epochs = 0;
  job.max_updates = 40;
  const Trained equal = Train(job, {.ranks = 3});
  std::array<std::atomic<std::int64_t>, 3> reads;
  const auto slow = [&](int rank) {
    return std::make_unique<SlowData>(std::move(OpenTrainingData(job)->train),
                                      tests::ReadTime(rank == 2),
                                      &reads[static_cast<std::size_t>(rank)]);
  };
  for (const bool always : {false, true}) {
    for (auto& of_rank : reads) of_rank = 0;
    const TempFolder folder;
    const Trained found = Train(job, {.ranks = 3,
                                      .guards = {.digest_every = 1},
                                      .run_dir = folder.path(),
                                      .loads = {.once = !always, .always = always},
                                      .data = slow});
    for (const Status& status : found.status) ASSERT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(found.summary[0].samples, equal.summary[0].samples);
    EXPECT_LT(Distance(found.weights[0], equal.weights[0]), 1e-6);
    const auto before = EventValues(folder.path(), "rebalance", "loads_before");
    const auto gains = EventValues(folder.path(), "rebalance", "gain_ratio");
    ASSERT_FALSE(gains.empty());
    EXPECT_EQ(before[0], "1x13");  // the regular expression ends at the comma
    // Not compared with the others: a busy machine may slow one of them down as much.
    EXPECT_LT(reads[2], 13 * job.max_updates) << "as with equal loads of 12, 12 and 13";
    EXPECT_GE(std::stod(gains[0]), Rebalancer::kMinGain);
    if (!always) {
      EXPECT_EQ(gains.size(), 1U);
    }
  }
}

// The samples of some updates are slow to read on rank 1, those of later ones on rank 0.
class TurningData final : public Dataset {
 public:
  TurningData(std::unique_ptr<Dataset> data, int rank, std::int64_t turn)
      : data_(std::move(data)), rank_(rank), turn_(turn) {}
  [[nodiscard]] std::int64_t size() const override { return data_->size(); }
  [[nodiscard]] const SampleSpec& spec() const override { return data_->spec(); }
  void Gather(std::span<const std::int64_t> indices, const BatchView& out) const override {
    for (const std::int64_t index : indices) {
      const bool slow = rank_ == (index < turn_ ? 1 : 0);
      std::this_thread::sleep_for(tests::ReadTime(slow));
    }
    data_->Gather(indices, out);
  }

 private:
  std::unique_ptr<Dataset> data_;
  int rank_;
  std::int64_t turn_;
};

// The times of an update arrive with those of the next one: of the first one after a change they
// are those of the loads before, and do not count.
TEST(SpeedTest, DiscardsTimesOfPreviousLoads) {
  constexpr std::int64_t kBatch = 12;
  constexpr std::int64_t kFirst = Rebalancer::kWarmUp + Rebalancer::kUpdates + 1;
  Job job = UnevenJob();
  std::get<SyntheticSpec>(job.data.train).samples = 60 * kBatch;
  job.data.eval.reset();
  job.data.shuffle = false;
  job.batch.target = kBatch;
  job.epochs = 1;
  const TempFolder folder;
  const Trained found = Train(
      job, {.ranks = 2, .run_dir = folder.path(), .loads = {.always = true}, .data = [&](int rank) {
              return std::make_unique<TurningData>(std::move(OpenTrainingData(job)->train), rank,
                                                   kFirst * kBatch);
            }});
  for (const Status& status : found.status) ASSERT_OK(status);
  // The change made the slowest rank slower, and is taken back.
  EXPECT_THAT(EventValues(folder.path(), "rebalance", "step"),
              ::testing::ElementsAre(StrCat(kFirst), StrCat(2 * kFirst)));
}

// There is no plan for measured speeds; without a reason there is no warning.
TEST(SpeedTest, AnySplitMeasuresNone) {
  Job job = UnevenJob();
  job.data.eval.reset();
  job.epochs = 0;
  job.max_updates = 40;
  job.batch.bits = Bits::kAnySplit;
  std::string warnings;
  std::atomic<std::int64_t> reads = 0;
  SetLogHook([&](const LogLine& line) { warnings += StrCat(line.message, "\n"); });
  const Trained found =
      Train(job, {.ranks = 2, .data = [&](int rank) {
                    return std::make_unique<SlowData>(std::move(OpenTrainingData(job)->train),
                                                      tests::ReadTime(rank == 1), &reads);
                  }});
  SetLogHook({});
  for (const Status& status : found.status) EXPECT_OK(status);
  EXPECT_EQ(warnings, "");
}

TEST(SpeedTest, RefusesFixedLoads) {
  Job job = UnevenJob();
  EXPECT_THAT(Train(job, {.ranks = 1, .loads = {.always = true}}).status[0],
              IsError(ErrorKind::kConfig, "expected 2 to 4096 ranks, found 1"));
  job.batch.micro = 65;
  for (const Status& status : Train(job, {.ranks = 2, .loads = {.once = true}}).status) {
    EXPECT_THAT(status, IsError(ErrorKind::kConfig, "at most 64 samples, found 65"));
  }
}

}  // namespace
}  // namespace gaccd
