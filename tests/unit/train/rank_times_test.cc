#include "daemon/train/rank_times.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace gaccd {
namespace {

// What every rank unpacks, when these are the times of the ranks.
std::vector<std::optional<Straggler>> Exchange(std::vector<RankTimes>& ranks,
                                               const std::vector<BusyTimes>& times) {
  std::vector<double> sum(ranks[0].elements());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].SetTimes(times[r]);
    std::vector<double> mine(ranks[r].elements(), 77);  // what is there before does not matter
    ranks[r].Pack(mine);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i];
  }
  std::vector<std::optional<Straggler>> found;
  for (RankTimes& rank : ranks) found.push_back(rank.Unpack(sum));
  return found;
}

std::vector<RankTimes> Ranks(int world) {
  std::vector<RankTimes> ranks;
  for (int r = 0; r < world; ++r) ranks.emplace_back(r, world);
  return ranks;
}

TEST(RankTimesTest, NamesSlowestRankAndPhase) {
  auto ranks = Ranks(5);
  auto found = Exchange(ranks, {{0.1, 1}, {0.1, 1.1}, {0.2, 3}, {0.3, 1}, {0.1, 0.9}});
  for (std::size_t r = 0; r < found.size(); ++r) {
    ASSERT_TRUE(found[r]);
    EXPECT_EQ(found[r]->rank, 2);
    EXPECT_EQ(found[r]->phase, "compute");
    EXPECT_NEAR(found[r]->ratio, 3.2 / 1.2, 1e-12);
  }
  EXPECT_NEAR(found[0]->wait_s, 2.1, 1e-12);
  EXPECT_EQ(found[2]->wait_s, 0);
  EXPECT_NEAR(found[4]->wait_s, 2.2, 1e-12);

  // Its data exceed the median by 4, its compute by 2, though compute is what takes longer.
  found = Exchange(ranks, {{1, 10}, {1, 10}, {1, 10}, {5, 12}, {1, 10}});
  EXPECT_EQ(found[0]->rank, 3);
  EXPECT_EQ(found[0]->phase, "data");
}

TEST(RankTimesTest, StoppedRankIsNotSlowInData) {
  auto ranks = Ranks(4);
  auto found = Exchange(ranks, {{0, 1}, {0, 1}, {3, 1, 3}, {0, 1}});
  EXPECT_EQ(found[0]->rank, 2);
  EXPECT_EQ(found[0]->phase, "stopped");
  // Inside the reduction, which is nobody's busy time.
  found = Exchange(ranks, {{0, 1}, {0, 1, 3}, {0, 1.1}, {0, 1}});
  EXPECT_EQ(found[0]->rank, 1);
  EXPECT_EQ(found[0]->phase, "stopped");
  EXPECT_EQ(found[0]->wait_s, 2);
  // All of them were without a core: that explains nothing.
  found = Exchange(ranks, {{0, 1, 1}, {0, 1, 1}, {3, 1, 1}, {0, 1, 1}});
  EXPECT_EQ(found[0]->phase, "data");
}

TEST(RankTimesTest, ComparesTwoRanksWithEachOther) {
  auto ranks = Ranks(2);
  const auto found = Exchange(ranks, {{0, 4}, {0, 1}});
  EXPECT_EQ(found[1]->rank, 0);
  EXPECT_EQ(found[1]->ratio, 4);
  EXPECT_EQ(found[1]->wait_s, 3);
}

// Rank 2 has twice the samples of the others by plan: twice their time is not slow, three times is.
TEST(RankTimesTest, ComparesWithPlannedLoad) {
  RankTimes ranks(0, 4);
  const auto unpack = [&](const std::vector<double>& compute_s,
                          const std::vector<double>& planned) {
    std::vector<double> sums(ranks.elements());
    for (std::size_t r = 0; r < compute_s.size(); ++r) sums[3 * r + 1] = compute_s[r];
    return *ranks.Unpack(sums, planned);
  };
  const std::vector<double> planned = {12, 12, 24, 12};
  Straggler found = unpack({1, 1, 2, 1}, planned);
  EXPECT_EQ(found.ratio, 1);
  EXPECT_EQ(found.wait_s, 1) << "rank 0 waits all the same";
  found = unpack({1, 1, 3, 1}, planned);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.ratio, 1.5);
  found = unpack({1, 3, 2, 1}, planned);
  EXPECT_EQ(found.rank, 1);
  EXPECT_EQ(found.ratio, 1.5);
  EXPECT_EQ(unpack({1, 1.6, 2, 1}, planned).ratio, 1) << "delays nobody";
  EXPECT_EQ(unpack({1, 1, 1.5, 1}, planned).ratio, 1) << "faster than planned";
  EXPECT_EQ(unpack({2, 0, 1, 0.5}, {2, 0, 1, 0}).ratio, 4) << "most have no sample: as measured";
  const auto lost = [&](double compute_s) {
    for (int update = 0; update < 600; ++update) {
      ranks.SetTimes({.compute_s = 1, .dur_s = compute_s});
      if (const auto slow = unpack({1, 1, compute_s, 1}, planned).slow)
        return slow->lost_s / slow->total_s;
    }
    return 0.0;
  };
  EXPECT_EQ(lost(2), 0) << "half of the time, all of it planned";
  EXPECT_GT(lost(4), 0.2);
}

TEST(RankTimesTest, ReportsNothingWithoutData) {
  auto ranks = Ranks(3);
  for (const auto& found : Exchange(ranks, {{0, 0}, {0, 0}, {0, 0}})) EXPECT_FALSE(found);
  for (const int world : {1, RankTimes::kMaxRanks + 1}) {
    RankTimes alone(0, world);
    EXPECT_EQ(alone.elements(), 0U);
    alone.SetTimes({1, 1});
    alone.Pack({});
    EXPECT_FALSE(alone.Unpack({}));
  }
  EXPECT_EQ(RankTimes(0, RankTimes::kMaxRanks).elements(), 3U * RankTimes::kMaxRanks);
}

struct Reported {
  int update = 0;
  int rank = 0;
  TimeLost lost;
};

// The warnings in so many updates of four ranks, each of which computes for a second,
// longer(update) aside. The slowest rank is all that an update lasts for.
template <typename Longer>
std::vector<Reported> Train(int updates, const Longer& longer) {
  auto ranks = Ranks(4);
  std::vector<Reported> reported;
  for (int update = 0; update < updates; ++update) {
    std::vector<BusyTimes> times(4, {0, 1});
    longer(update, times);
    double longest = 0;
    for (const BusyTimes& one : times) longest = std::max(longest, one.data_s + one.compute_s);
    for (BusyTimes& one : times) one.dur_s = longest;
    const auto found = Exchange(ranks, times);
    if (found[0]->slow) reported.push_back({update, found[0]->rank, *found[0]->slow});
  }
  return reported;
}

TEST(RankTimesTest, ReportsConstantlySlowRankOnce) {
  const auto reported = Train(500, [](int, auto& times) { times[2] = {1.5, 1.5}; });
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].update, 19) << "20 updates of 3 s";
  EXPECT_EQ(reported[0].rank, 2);
  EXPECT_EQ(reported[0].lost.lost_s, 2 * 20);
  EXPECT_EQ(reported[0].lost.total_s, 3 * 20);
  EXPECT_EQ(reported[0].lost.updates, 20);
  EXPECT_EQ(reported[0].lost.phase, "data");
}

TEST(RankTimesTest, RequiresManyShortUpdates) {
  const auto reported = Train(120, [](int, auto& times) {
    for (auto& one : times) one.compute_s = 0.01;
    times[1].compute_s = 0.02;
  });
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].update, 99);
}

// 100 updates of 0.2 ms are no time that anybody would notice.
TEST(RankTimesTest, ReportsSlowRankAfterASecond) {
  const auto slow = [](int, auto& times) {
    for (auto& one : times) one.compute_s = 0.0001;
    times[1].compute_s = 0.0002;
  };
  EXPECT_TRUE(Train(4900, slow).empty());
  EXPECT_EQ(Train(5800, slow).size(), 1U);
}

TEST(RankTimesTest, ReportsRankSlowEveryThirdUpdate) {
  const auto reported = Train(500, [](int update, auto& times) {
    if (update % 3 == 0) times[1].compute_s = 2;
  });
  ASSERT_EQ(reported.size(), 1U);  // 1 of 4 seconds
  EXPECT_EQ(reported[0].rank, 1);
  EXPECT_EQ(reported[0].lost.phase, "compute");
  // Every third update by so much less that it costs 0.6 of 3.6 seconds.
  EXPECT_TRUE(Train(500, [](int update, auto& times) {
                if (update % 3 == 0) times[1].compute_s = 1.6;
              }).empty());
}

TEST(RankTimesTest, IgnoresRanksSlowInTurn) {
  EXPECT_TRUE(Train(500, [](int update, auto& times) { times[update % 4].compute_s = 3; }).empty());
  EXPECT_TRUE(
      Train(500, [](int update, auto& times) { times[update % 2].compute_s = 1.6; }).empty());
}

TEST(RankTimesTest, SlowFirstUpdateOfAllBlamesNoRank) {
  EXPECT_TRUE(Train(200, [](int update, auto& times) {
                for (auto& one : times) one.data_s = update == 0 ? 60 : 0;
                times[2].data_s *= 1.05;
              }).empty());
}

TEST(RankTimesTest, IgnoresSinglePause) {
  for (const int pause : {0, 10, 150}) {
    EXPECT_TRUE(Train(400,
                      [&](int update, auto& times) {
                        times[3].compute_s =
                            1.1;  // it is the slowest anyway, by little, or now and then
                        if (update % 20 == 0) times[3].compute_s = 2;
                        if (update == pause) times[3] = {100, 1, 100};
                      })
                    .empty())
        << pause;
  }
}

// Updates of 2 ms, of which the pause is a thousand: what else is lost around it is not much.
TEST(RankTimesTest, IgnoresSinglePauseAmongShortUpdates) {
  for (const int pause : {0, 10, 150}) {
    EXPECT_TRUE(Train(300,
                      [&](int update, auto& times) {
                        for (auto& one : times) one.compute_s = 0.002;
                        if (update % 3 == 0) times[3].compute_s = 0.004;
                        if (update == pause) times[3] = {2, 0.002, 2};
                      })
                    .empty())
        << pause;
  }
}

TEST(RankTimesTest, ReportsRecurringSlowRankAgain) {
  const auto reported = Train(600, [](int update, auto& times) {
    if (update < 100 || update >= 300) times[0].compute_s = 2;
  });
  ASSERT_EQ(reported.size(), 2U);
  EXPECT_GE(reported[1].update, 300);
  EXPECT_LT(reported[1].update, 400);
}

// A minute in which all waited for the data: it counts until there are ten other seconds, 2500
// updates of 4 ms.
TEST(RankTimesTest, WindowHasTenSecondsBesideLongUpdate) {
  const auto slow = [](int update, auto& times) {
    for (auto& one : times) one.compute_s = update == 0 ? 60 : 0.002;
    if (update > 0) times[1].compute_s = 0.004;
  };
  EXPECT_TRUE(Train(2500, slow).empty());
  EXPECT_EQ(Train(2600, slow).size(), 1U);
}

// After a pause of a minute the window has few other updates, of less than a second.
TEST(RankTimesTest, ForgetsSlowTimeOfRecoveredRank) {
  const auto reported = Train(8150, [](int update, auto& times) {
    for (auto& one : times) one.compute_s = 0.002;
    if (update < 1500 || update > 8000) times[1].compute_s = 0.004;
    if (update == 7000) times[1].compute_s = 0.0021;
    if (update == 8000) times[1].compute_s = 60;
  });
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_LT(reported[0].update, 1500);
}

// Stopped for 0.7 s of every second: a hundred updates of 3 ms see it once.
TEST(RankTimesTest, ReportsRankStoppedEveryHundredUpdates) {
  const auto reported = Train(1500, [](int update, auto& times) {
    for (auto& one : times) one.compute_s = 0.003;
    if (update % 100 == 50) times[2] = {0, 0.703, 0.7};
  });
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].rank, 2);
  EXPECT_EQ(reported[0].lost.phase, "stopped");
  EXPECT_NEAR(reported[0].lost.lost_s / reported[0].lost.total_s, 0.7, 0.05);
  // One pause of 0.7 s in ten seconds is none.
  EXPECT_TRUE(Train(4000, [](int update, auto& times) {
                for (auto& one : times) one.compute_s = 0.003;
                if (update % 3000 == 50) times[2] = {0, 0.703, 0.7};
              }).empty());
}

// Stops between updates are counted as well, but the others waited in updates alone.
TEST(RankTimesTest, LostTimeIsAtMostUpdateTime) {
  const auto reported = Train(30, [](int, auto& times) {
    for (auto& one : times) one.compute_s = 3;
    times[2].stopped_s = 5;
  });
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].lost.total_s, 3 * 20);
  EXPECT_EQ(reported[0].lost.lost_s, 2 * 20);
  const auto mostly = Train(30, [](int, auto& times) {
    for (auto& one : times) one.compute_s = 3;
    times[2].stopped_s = 8;
  });
  ASSERT_EQ(mostly.size(), 1U);
  EXPECT_EQ(mostly[0].lost.lost_s, mostly[0].lost.total_s) << "5 s of every 3";
}

TEST(RankTimesTest, CountsTimeOfStoppedRank) {
  const auto reported = Train(100, [](int update, auto& times) {
    if (update % 4 == 0) times[3] = {0, 5, 4};
  });
  ASSERT_EQ(reported.size(), 1U);
  EXPECT_EQ(reported[0].rank, 3);
  EXPECT_EQ(reported[0].lost.phase, "stopped");
}

}  // namespace
}  // namespace gaccd
