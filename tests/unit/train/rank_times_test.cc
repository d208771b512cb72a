#include "daemon/train/rank_times.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace gaccd {
namespace {

struct Times {
  double data_s;
  double compute_s;
};

// What every rank hears, when these are the times of the ranks.
std::vector<std::optional<Straggler>> Exchange(std::vector<RankTimes>& ranks,
                                               const std::vector<Times>& times) {
  std::vector<double> sum(ranks[0].elements());
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].Took(times[r].data_s, times[r].compute_s);
    std::vector<double> mine(ranks[r].elements(), 77);  // what is there before does not matter
    ranks[r].Tell(mine);
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += mine[i];
  }
  std::vector<std::optional<Straggler>> heard;
  for (RankTimes& rank : ranks) heard.push_back(rank.Hear(sum));
  return heard;
}

std::vector<RankTimes> Ranks(int world) {
  std::vector<RankTimes> ranks;
  for (int r = 0; r < world; ++r) ranks.emplace_back(r, world);
  return ranks;
}

TEST(RankTimesTest, NamesTheSlowestRankAndItsPhase) {
  auto ranks = Ranks(5);
  auto heard = Exchange(ranks, {{0.1, 1}, {0.1, 1.1}, {0.2, 3}, {0.3, 1}, {0.1, 0.9}});
  for (std::size_t r = 0; r < heard.size(); ++r) {
    ASSERT_TRUE(heard[r]);
    EXPECT_EQ(heard[r]->rank, 2);
    EXPECT_EQ(heard[r]->phase, "compute");
    EXPECT_NEAR(heard[r]->ratio, 3.2 / 1.2, 1e-12);
  }
  EXPECT_NEAR(heard[0]->wait_s, 2.1, 1e-12);
  EXPECT_EQ(heard[2]->wait_s, 0);
  EXPECT_NEAR(heard[4]->wait_s, 2.2, 1e-12);

  // Its data exceed the median by 4, its compute by 2, though compute is what takes longer.
  heard = Exchange(ranks, {{1, 10}, {1, 10}, {1, 10}, {5, 12}, {1, 10}});
  EXPECT_EQ(heard[0]->rank, 3);
  EXPECT_EQ(heard[0]->phase, "data");
}

TEST(RankTimesTest, OfTwoRanksTheSlowOneIsMeasuredByTheOther) {
  auto ranks = Ranks(2);
  const auto heard = Exchange(ranks, {{0, 4}, {0, 1}});
  EXPECT_EQ(heard[1]->rank, 0);
  EXPECT_EQ(heard[1]->ratio, 4);
  EXPECT_EQ(heard[1]->wait_s, 3);
}

TEST(RankTimesTest, NothingIsSaidWhereNothingIsKnown) {
  auto ranks = Ranks(3);
  for (const auto& heard : Exchange(ranks, {{0, 0}, {0, 0}, {0, 0}})) EXPECT_FALSE(heard);
  for (const int world : {1, RankTimes::kMostRanks + 1}) {
    RankTimes alone(0, world);
    EXPECT_EQ(alone.elements(), 0U);
    alone.Took(1, 1);
    alone.Tell({});
    EXPECT_FALSE(alone.Hear({}));
  }
  EXPECT_EQ(RankTimes(0, RankTimes::kMostRanks).elements(), 2U * RankTimes::kMostRanks);
}

TEST(RankTimesTest, CountsHowLongARankIsTheSlowOne) {
  auto ranks = Ranks(3);
  const std::vector<Times> slow_1{{0, 1}, {0, 2}, {0, 1}};
  const std::vector<Times> slow_2{{0, 1}, {0, 1}, {0, 2}};
  const std::vector<Times> even{{0, 1}, {0, 1.4}, {0, 1}};
  for (std::int64_t update = 1; update <= RankTimes::kUpdates + 1; ++update) {
    EXPECT_EQ(Exchange(ranks, slow_1)[0]->streak, update);
  }
  EXPECT_EQ(Exchange(ranks, slow_2)[0]->streak, 1);
  EXPECT_EQ(Exchange(ranks, slow_1)[0]->streak, 1);
  EXPECT_EQ(Exchange(ranks, even)[0]->streak, 0);
  EXPECT_EQ(Exchange(ranks, slow_1)[0]->streak, 1);
}

}  // namespace
}  // namespace gaccd
