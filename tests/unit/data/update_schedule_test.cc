#include "daemon/data/update_schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <limits>
#include <random>
#include <tuple>

#include "collectives/base/strings.h"
#include "daemon/data/index_source.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

UpdateSchedule MakeSchedule(std::int64_t size, std::int64_t batch, std::int64_t epochs,
                            LastCycle last_cycle, std::int64_t max_updates = 0) {
  return ValueOrThrow(UpdateSchedule::Make({size, batch, epochs, max_updates, last_cycle}));
}

Plan MakePlan(std::int64_t world, std::int64_t micro, std::int64_t batch) {
  auto plan =
      Plan::Make({.nodes = world, .gpus_per_node = 1, .micro_batch = micro, .target_batch = batch});
  EXPECT_TRUE(plan.ok());
  return std::move(plan).value();
}

std::vector<Update> All(const UpdateSchedule& schedule) {
  std::vector<Update> updates;
  for (std::int64_t u = 0; u < schedule.updates(); ++u) updates.push_back(schedule.At(u));
  return updates;
}

using Row = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool, std::int64_t>;
std::vector<Row> Rows(const UpdateSchedule& schedule) {
  std::vector<Row> rows;
  for (const Update& u : All(schedule)) {
    rows.emplace_back(u.epoch, u.first, u.samples, u.epoch_end, u.dropped);
  }
  return rows;
}

TEST(UpdateScheduleTest, SamplesBeforeEqualSumOfUpdates) {
  for (const LastCycle last_cycle : {LastCycle::kUpdate, LastCycle::kDrop, LastCycle::kCarry}) {
    for (const auto& [size, batch, most] :
         {std::tuple{10, 4, 0}, {12, 4, 0}, {10, 4, 4}, {7, 7, 0}, {9, 1, 0}, {10, 3, 5}}) {
      const auto schedule = MakeSchedule(size, batch, 3, last_cycle, most);
      std::int64_t sum = 0;
      for (const Update& update : All(schedule)) {
        EXPECT_EQ(schedule.SamplesBefore(update.index), sum)
            << static_cast<int>(last_cycle) << " " << size << " " << batch;
        sum += update.samples;
      }
      EXPECT_EQ(schedule.SamplesBefore(schedule.updates()), sum);
    }
  }
}

// Ten samples, batch four, two epochs.
TEST(UpdateScheduleTest, UpdateModeMakesRemainderOneSmallerUpdate) {
  const auto schedule = MakeSchedule(10, 4, 2, LastCycle::kUpdate);
  EXPECT_THAT(Rows(schedule),
              testing::ElementsAre(Row{0, 0, 4, false, 0}, Row{0, 4, 4, false, 0},
                                   Row{0, 8, 2, true, 0}, Row{1, 10, 4, false, 0},
                                   Row{1, 14, 4, false, 0}, Row{1, 18, 2, true, 0}));
  EXPECT_THAT(schedule.sizes(), testing::ElementsAre(2, 4));
}

TEST(UpdateScheduleTest, DropOmitsAndCountsRemainder) {
  const auto schedule = MakeSchedule(10, 4, 2, LastCycle::kDrop);
  EXPECT_THAT(Rows(schedule),
              testing::ElementsAre(Row{0, 0, 4, false, 0}, Row{0, 4, 4, true, 2},
                                   Row{1, 10, 4, false, 0}, Row{1, 14, 4, true, 2}));
  EXPECT_THAT(schedule.sizes(), testing::ElementsAre(4));
}

TEST(UpdateScheduleTest, CarryContinuesIntoNextEpoch) {
  const auto two = MakeSchedule(10, 4, 2, LastCycle::kCarry);
  EXPECT_THAT(Rows(two), testing::ElementsAre(Row{0, 0, 4, false, 0}, Row{0, 4, 4, false, 0},
                                              Row{0, 8, 4, true, 0}, Row{1, 12, 4, false, 0},
                                              Row{1, 16, 4, true, 0}));
  EXPECT_THAT(two.sizes(), testing::ElementsAre(4));
  const auto one = MakeSchedule(10, 4, 1, LastCycle::kCarry);
  EXPECT_THAT(Rows(one), testing::ElementsAre(Row{0, 0, 4, false, 0}, Row{0, 4, 4, false, 0},
                                              Row{0, 8, 2, true, 0}));
  EXPECT_THAT(one.sizes(), testing::ElementsAre(2, 4));
}

TEST(UpdateScheduleTest, MaxUpdatesLimitsRun) {
  EXPECT_EQ(MakeSchedule(10, 4, 2, LastCycle::kUpdate, 4).updates(), 4);
  EXPECT_EQ(MakeSchedule(10, 4, 2, LastCycle::kUpdate, 2).sizes().size(), 1);
  EXPECT_EQ(MakeSchedule(10, 4, 0, LastCycle::kCarry, 1000).sizes().size(), 1);
  EXPECT_EQ(MakeSchedule(11, 4, 2, LastCycle::kCarry, 3).sizes().size(), 1);
  const auto endless = MakeSchedule(10, 4, 0, LastCycle::kUpdate, 4);
  EXPECT_EQ(endless.updates(), 4);
  EXPECT_EQ(endless.At(3).first + endless.At(3).samples, 14);
  EXPECT_THAT(endless.sizes(), testing::ElementsAre(2, 4));
}

TEST(UpdateScheduleTest, DataSetOfOneBatch) {
  for (const auto policy : {LastCycle::kUpdate, LastCycle::kCarry, LastCycle::kDrop}) {
    const auto schedule = MakeSchedule(4, 4, 3, policy);
    ASSERT_EQ(schedule.updates(), 3);
    for (const Update& u : All(schedule)) EXPECT_TRUE(u.epoch_end && u.samples == 4);
  }
}

TEST(UpdateScheduleTest, RefusesInvalidValues) {
  const auto refused = [](const ScheduleRequest& request) {
    const auto schedule = UpdateSchedule::Make(request);
    EXPECT_THAT(schedule, HasKind(ErrorKind::kConfig));
    return schedule.status().message();
  };
  const std::string small = refused({.dataset_size = 99, .batch = 100});
  EXPECT_THAT(small, HasSubstr("expected at least 100"));
  EXPECT_THAT(small, HasSubstr("found 99"));
  EXPECT_THAT(refused({.dataset_size = 9, .batch = 0}), HasSubstr("found 0"));
  EXPECT_THAT(refused({.dataset_size = 9, .batch = 3, .epochs = -1}), HasSubstr("-1"));
  EXPECT_THAT(refused({.dataset_size = 9, .batch = 3, .epochs = 0}), HasSubstr("found 0 and 0"));
  const std::int64_t huge = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(refused({.dataset_size = 9, .batch = 3, .epochs = huge}), HasSubstr("63 bits"));
  for (const auto policy : {LastCycle::kUpdate, LastCycle::kCarry, LastCycle::kDrop}) {
    EXPECT_THAT(refused({9, 7, 0, huge, policy}), HasSubstr("63 bits"));
  }
}

// What the policy says must be used, as run positions.
std::vector<std::int64_t> Promised(std::int64_t size, std::int64_t batch, std::int64_t epochs,
                                   LastCycle policy) {
  std::vector<std::int64_t> positions;
  for (std::int64_t p = 0; p < epochs * size; ++p) {
    if (policy != LastCycle::kDrop || p % size < size / batch * batch) positions.push_back(p);
  }
  return positions;
}

TEST(UpdateScheduleTest, UsesEveryPositionOnce) {
  for (std::int64_t size = 1; size <= 40; ++size) {
    for (std::int64_t batch = 1; batch <= size; ++batch) {
      for (std::int64_t epochs = 1; epochs <= 4; ++epochs) {
        for (const auto policy : {LastCycle::kUpdate, LastCycle::kCarry, LastCycle::kDrop}) {
          const auto schedule = MakeSchedule(size, batch, epochs, policy);
          std::vector<std::int64_t> used;
          std::int64_t ends = 0;
          std::int64_t dropped = 0;
          for (const Update& u : All(schedule)) {
            ASSERT_EQ(std::ranges::count(schedule.sizes(), u.samples), 1);
            ASSERT_EQ(u.epoch, u.first / size);
            for (std::int64_t i = 0; i < u.samples; ++i) used.push_back(u.first + i);
            ends += u.epoch_end;
            dropped += u.dropped;
          }
          const std::string what = StrCat("size ", size, " batch ", batch, " epochs ", epochs,
                                          " policy ", static_cast<int>(policy));
          ASSERT_EQ(used, Promised(size, batch, epochs, policy)) << what;
          ASSERT_EQ(used.size() + static_cast<std::size_t>(dropped),
                    static_cast<std::size_t>(epochs * size))
              << what;
          ASSERT_EQ(ends, epochs) << what;
        }
      }
    }
  }
}

// The updates one by one, without any formula: first, samples, samples before.
using Walked = std::vector<std::array<std::int64_t, 3>>;
Walked Walk(const ScheduleRequest& request) {
  Walked updates;
  const std::int64_t size = request.dataset_size;
  const std::int64_t end =
      request.epochs > 0 ? request.epochs * size : std::numeric_limits<std::int64_t>::max();
  std::int64_t position = 0;
  std::int64_t taken = 0;
  std::int64_t batch = request.batch;
  std::size_t next = 0;  // of request.later
  while (request.max_updates == 0 || std::ssize(updates) < request.max_updates) {
    if (next < request.later.size()) {
      const BatchChange& later = request.later[next];
      if (later.at_update == std::ssize(updates) ||
          (later.at_samples && taken >= *later.at_samples)) {
        batch = later.batch;
        ++next;
      }
    }
    std::int64_t left = size - position % size;
    if (request.last_cycle == LastCycle::kDrop && left < batch) {
      position += left;
      left = size;
    }
    if (position >= end) break;
    const std::int64_t most = request.last_cycle == LastCycle::kCarry ? end - position : left;
    updates.push_back({position, std::min(batch, most), taken});
    position += updates.back()[1];
    taken += updates.back()[1];
  }
  return updates;
}

TEST(UpdateScheduleTest, ChangingBatchesEqualSequentialWalk) {
  std::mt19937 engine(11);
  const auto random = [&engine](std::int64_t below) {
    return static_cast<std::int64_t>(engine() % static_cast<std::uint64_t>(below));
  };
  int reached = 0;
  for (int trial = 0; trial < 6000; ++trial) {
    ScheduleRequest request{.dataset_size = 5 + random(20),
                            .epochs = random(5),
                            .last_cycle = static_cast<LastCycle>(random(3))};
    request.batch = 1 + random(request.dataset_size);
    request.max_updates = request.epochs == 0 || random(3) == 0 ? 1 + random(40) : 0;
    for (std::int64_t i = 0; i < random(4); ++i) {
      BatchChange later{.batch = 1 + random(request.dataset_size)};
      (random(2) == 0 ? later.at_update : later.at_samples) = 1 + random(50);
      request.later.push_back(later);
    }
    const auto schedule = UpdateSchedule::Make(request);
    if (!schedule.ok()) continue;  // out of order
    const Walked expected = Walk(request);
    Walked found;
    for (std::int64_t u = 0; u < schedule->updates(); ++u) {
      const Update update = schedule->At(u);
      found.push_back({update.first, update.samples, schedule->SamplesBefore(u)});
      ASSERT_EQ(std::ranges::count(schedule->sizes(), update.samples), 1);
      ASSERT_EQ(update.epoch, update.first / request.dataset_size);
    }
    ASSERT_EQ(found, expected) << trial;
    reached += schedule->stages().size() > 1;
  }
  EXPECT_GT(reached, 1000);
}

TEST(UpdateScheduleTest, StagesAreConsecutive) {
  const auto later = [](std::vector<BatchChange> batches) {
    return UpdateSchedule::Make(
        {.dataset_size = 100, .batch = 10, .epochs = 3, .later = std::move(batches)});
  };
  const auto schedule =
      ValueOrThrow(later({{.at_samples = 25, .batch = 7}, {.at_update = 20, .batch = 9}}));
  ASSERT_EQ(schedule.stages().size(), 3);
  EXPECT_EQ(schedule.stages()[1].first_update, 3);  // 30 samples are at least 25
  EXPECT_EQ(schedule.stages()[2].first_update, 20);
  EXPECT_EQ(BatchesText(schedule, 30), "10, 7 from update 4, 9 from update 21");
  EXPECT_THAT(later({{.at_samples = 200, .batch = 7}, {.at_update = 3, .batch = 9}}),
              HasKind(ErrorKind::kConfig));
  EXPECT_THAT(later({{.at_update = 3, .batch = 101}}), HasKind(ErrorKind::kConfig));
  EXPECT_THAT(later({{.at_update = 3, .batch = 0}}), HasKind(ErrorKind::kConfig));
}

// The samples of every update, drawn by all ranks, in rank order.
std::vector<std::vector<std::int64_t>> DrawnBy(const UpdateSchedule& schedule,
                                               const SampleOrder& order, const Plan& plan,
                                               std::int64_t first_update = 0) {
  std::vector<std::vector<std::int64_t>> drawn(
      static_cast<std::size_t>(schedule.updates() - first_update));
  std::vector<std::int64_t> micro(static_cast<std::size_t>(plan.request().micro_batch));
  for (std::int64_t rank = 0; rank < plan.world(); ++rank) {
    auto source = ValueOrThrow(TrainIndices::Make(order, schedule, plan, rank, first_update));
    EXPECT_LE(source.max_samples(), plan.request().micro_batch);
    for (std::int64_t u = first_update; u < schedule.updates(); ++u) {
      const std::int64_t samples = schedule.At(u).samples;
      const std::int64_t steps = plan.ForSamples(samples).value().accum_steps();
      for (std::int64_t j = 0; j < steps; ++j) {
        const std::int64_t count = source.Next(micro);
        EXPECT_GE(count, 0);
        EXPECT_LE(count, source.max_samples());
        auto& update = drawn[static_cast<std::size_t>(u - first_update)];
        EXPECT_TRUE(count == 0 || source.position() == std::ssize(update));
        update.insert(update.end(), micro.begin(), micro.begin() + count);
      }
    }
    EXPECT_EQ(source.Next(micro), IndexSource::kEnd);
    EXPECT_EQ(source.Next(micro), IndexSource::kEnd);
  }
  return drawn;
}

TEST(TrainIndicesTest, SamplesOfUpdateDoNotDependOnRanks) {
  for (const auto policy : {LastCycle::kUpdate, LastCycle::kCarry, LastCycle::kDrop}) {
    for (const auto& [size, batch, epochs] :
         {std::tuple{103, 17, 3}, {64, 16, 2}, {50, 50, 3}, {241, 240, 2}, {9, 2, 4}}) {
      const auto schedule = MakeSchedule(size, batch, epochs, policy);
      const SampleOrder order(3, size, true);
      const auto alone = DrawnBy(schedule, order, MakePlan(1, batch, batch));
      // Each update holds the samples at its run positions, once each.
      for (std::int64_t u = 0; u < schedule.updates(); ++u) {
        const Update update = schedule.At(u);
        std::vector<std::int64_t> expected(static_cast<std::size_t>(update.samples));
        order.Fill(update.first, expected);
        ASSERT_EQ(alone[static_cast<std::size_t>(u)], expected);
      }
      for (const std::int64_t world : {2, 3, 7, 16, 60}) {
        for (const std::int64_t micro : {1, 3, 8}) {
          ASSERT_EQ(DrawnBy(schedule, order, MakePlan(world, micro, batch)), alone)
              << "size " << size << " batch " << batch << " world " << world << " micro " << micro;
        }
      }
    }
  }
}

TEST(TrainIndicesTest, ContinuesAtAnyUpdateOnOtherRanks) {
  const auto schedule = MakeSchedule(103, 17, 3, LastCycle::kUpdate);
  const SampleOrder order(3, 103, true);
  const auto whole = DrawnBy(schedule, order, MakePlan(4, 5, 17));
  for (std::int64_t u = 0; u <= schedule.updates(); ++u) {
    EXPECT_EQ(DrawnBy(schedule, order, MakePlan(3, 2, 17), u),
              std::vector(whole.begin() + u, whole.end()));
  }
}

TEST(TrainIndicesTest, PublishedCaseWith240Ranks) {
  const auto schedule = MakeSchedule(60'000, 3072, 1, LastCycle::kUpdate);
  const SampleOrder order(1, 60'000, true);
  const auto drawn = DrawnBy(schedule, order, MakePlan(240, 10, 3072));
  std::vector<int> uses(60'000);
  for (const auto& update : drawn) {
    for (const std::int64_t index : update) ++uses[static_cast<std::size_t>(index)];
  }
  EXPECT_THAT(uses, testing::Each(1));
  EXPECT_EQ(drawn.back().size(), 60'000U % 3072U);
}

TEST(TrainIndicesTest, RefusesIncompatibleValues) {
  const auto schedule = MakeSchedule(100, 10, 1, LastCycle::kUpdate);
  const auto message = [&](std::int64_t size, std::int64_t batch, std::int64_t rank,
                           std::int64_t update) {
    const auto source = TrainIndices::Make(SampleOrder(1, size, true), schedule,
                                           MakePlan(2, 5, batch), rank, update);
    EXPECT_FALSE(source.ok());
    return source.ok() ? "" : source.status().message();
  };
  EXPECT_THAT(message(100, 11, 0, 0), HasSubstr("11"));
  EXPECT_THAT(message(99, 10, 0, 0), HasSubstr("99"));
  EXPECT_THAT(message(100, 10, 2, 0), HasSubstr("[0, 2)"));
  EXPECT_THAT(message(100, 10, 0, 11), HasSubstr("[0, 10]"));
}

TEST(EvalIndicesTest, CoversEverySampleOnce) {
  for (std::int64_t size = 0; size <= 30; ++size) {
    for (std::int64_t world = 1; world <= 9; ++world) {
      for (const std::int64_t batch : {1, 4, 100}) {
        std::vector<std::int64_t> seen;
        std::vector<std::int64_t> indices(100);
        for (std::int64_t rank = 0; rank < world; ++rank) {
          EvalIndices source(MakeEvalShard(size, rank, world), batch);
          const std::int64_t most = source.max_samples();
          for (std::int64_t n = source.Next(indices); n != IndexSource::kEnd;
               n = source.Next(indices)) {
            ASSERT_LE(n, most);
            ASSERT_GT(n, 0);
            seen.insert(seen.end(), indices.begin(), indices.begin() + n);
          }
        }
        ASSERT_EQ(seen.size(), static_cast<std::size_t>(size));
        for (std::size_t i = 0; i < seen.size(); ++i) {
          ASSERT_EQ(seen[i], static_cast<std::int64_t>(i));
        }
      }
    }
  }
}

TEST(EvalIndicesTest, BatchesAreSameOnAnyRanksInShardsOfBatches) {
  for (std::int64_t size = 0; size <= 30; ++size) {
    for (std::int64_t world = 1; world <= 9; ++world) {
      std::int64_t next = 0;
      std::int64_t last = std::numeric_limits<std::int64_t>::max();
      for (std::int64_t rank = 0; rank < world; ++rank) {
        const EvalShard shard = MakeEvalShard(size, rank, world, 4);
        ASSERT_EQ(shard.first, next);
        ASSERT_TRUE(shard.count == 0 || shard.first % 4 == 0);
        next += shard.count;
        const std::int64_t batches = (shard.count + 3) / 4;
        ASSERT_LE(batches, last);
        ASSERT_LE(rank == 0 ? 0 : last - batches, 1);
        last = batches;
      }
      ASSERT_EQ(next, size);
    }
  }
}

}  // namespace
}  // namespace gaccd
