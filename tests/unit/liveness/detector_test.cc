#include "collectives/liveness/heartbeat/detector.h"

#include <gtest/gtest.h>

namespace gaccd::heartbeat {
namespace {

using std::chrono::milliseconds;

// A detector with a clock of its own. Rank 0 hears itself too, as in the hub.
class DetectorTest : public ::testing::Test {
 protected:
  void Watch(int ranks) {
    std::vector<int> all;
    for (int rank = 0; rank < ranks; ++rank) all.push_back(rank);
    world_ = ranks;
    progress_.assign(static_cast<std::size_t>(ranks), {});
    detector_.emplace(
        all, DetectorOptions{.silent_after = milliseconds(5000), .tick = milliseconds(100)}, now_);
  }

  // Time passes in ticks; all ranks but the silent ones beat at every tick.
  std::optional<LostRank> Pass(milliseconds time, const std::vector<int>& silent = {}) {
    for (milliseconds done{0}; done < time; done += milliseconds(100)) {
      now_ += milliseconds(100);
      for (int rank = 0; rank < world_; ++rank) {
        if (std::find(silent.begin(), silent.end(), rank) == silent.end()) {
          detector_->OnBeat(rank, progress_[static_cast<std::size_t>(rank)], now_);
        }
      }
      if (auto lost = detector_->Tick(now_)) return lost;
    }
    return std::nullopt;
  }

  Progress& progress(int rank) { return progress_[static_cast<std::size_t>(rank)]; }

  int world_ = 0;
  Detector::Time now_{};
  std::vector<Progress> progress_;
  std::optional<Detector> detector_;
};

TEST_F(DetectorTest, ReportsNoneWhileAllSendHeartbeats) {
  Watch(8);
  EXPECT_FALSE(Pass(milliseconds(600'000)));
}

TEST_F(DetectorTest, ReportsClosedConnectionButNotGoodbye) {
  Watch(3);
  detector_->OnGoodbye(2);
  detector_->OnDisconnect(2);
  EXPECT_FALSE(Pass(milliseconds(20'000), {2}));
  detector_->OnDisconnect(1);
  const auto lost = Pass(milliseconds(100), {1, 2});
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 1);
  EXPECT_EQ(lost->absence, Absence::kEnded);
}

TEST_F(DetectorTest, ReportsSilenceOnlyAfterLimit) {
  Watch(4);
  EXPECT_FALSE(Pass(milliseconds(5'000), {3}));
  const auto lost = Pass(milliseconds(300), {3});
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 3);
  EXPECT_EQ(lost->absence, Absence::kSilent);
  EXPECT_GE(lost->silence, milliseconds(5'000));
}

TEST_F(DetectorTest, NamesFirstSilentRank) {
  Watch(6);
  EXPECT_FALSE(Pass(milliseconds(1'000), {4}));
  const auto lost = Pass(milliseconds(5'000), {4, 2});
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 4);
}

// Both have exceeded the limit at the same look.
TEST_F(DetectorTest, NamesRankSilentForLongestTime) {
  Watch(6);
  EXPECT_FALSE(Pass(milliseconds(100), {4}));
  std::optional<LostRank> lost;
  for (int look = 0; look < 20 && !lost; ++look) {
    now_ += milliseconds(300);
    for (const int rank : {0, 1, 3, 5}) detector_->OnBeat(rank, progress(rank), now_);
    lost = detector_->Tick(now_);
  }
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 4);
  EXPECT_EQ(lost->silence, milliseconds(5'200));
}

TEST_F(DetectorTest, OwnDelayIsNotSilenceOfOthers) {
  Watch(4);
  for (int i = 0; i < 10; ++i) {
    now_ += milliseconds(20'000);  // this process did not run; nothing was read meanwhile
    EXPECT_FALSE(detector_->Tick(now_));
  }
  // Each of them was a tick as well: a second in all.
  EXPECT_FALSE(Pass(milliseconds(3'900), {1}));
  EXPECT_TRUE(Pass(milliseconds(300), {1}));
}

// What this process did not see before a rank began to compute does not extend its limit.
TEST_F(DetectorTest, ReportsStuckRankAfterOwnDelay) {
  Watch(2);
  now_ += milliseconds(60'000);
  EXPECT_FALSE(detector_->Tick(now_));
  progress(0) = {.phase = Phase::kReduce, .update = 7, .median_update_ms = 100};
  progress(1) = {.phase = Phase::kCompute, .update = 7, .median_update_ms = 100};
  EXPECT_FALSE(Pass(milliseconds(4'900)));
  const auto lost = Pass(milliseconds(500));
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 1);
  EXPECT_EQ(lost->absence, Absence::kStalled);
}

TEST_F(DetectorTest, ReportsNoneDeadIfAllAreLate) {
  Watch(8);
  EXPECT_FALSE(Pass(milliseconds(9'000), {1, 2, 3, 4, 5, 6, 7}));
  EXPECT_FALSE(Pass(milliseconds(200)));
  // But not for ever: three limits.
  EXPECT_TRUE(Pass(milliseconds(16'000), {1, 2, 3, 4, 5, 6, 7}));
}

TEST_F(DetectorTest, DoesNotCompareTwoRanks) {
  Watch(2);
  EXPECT_TRUE(Pass(milliseconds(5'500), {1}));
}

TEST_F(DetectorTest, ReportsRankStuckInCompute) {
  Watch(3);
  for (int rank = 0; rank < 3; ++rank) {
    progress(rank) = {.phase = Phase::kReduce, .update = 7, .median_update_ms = 100};
  }
  progress(2).phase = Phase::kCompute;
  EXPECT_FALSE(Pass(milliseconds(4'900)));
  const auto lost = Pass(milliseconds(500));
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 2);
  EXPECT_EQ(lost->absence, Absence::kStalled);
}

// The others beat at other moments: one of them, heard a moment ago, does not make it look stuck.
TEST_F(DetectorTest, SilentRankInComputeIsSilentNotStuck) {
  Watch(3);
  for (int rank = 0; rank < 3; ++rank) {
    progress(rank) = {.phase = Phase::kReduce, .update = 7, .median_update_ms = 100};
  }
  progress(2).phase = Phase::kCompute;
  EXPECT_FALSE(Pass(milliseconds(500)));
  const auto lost = Pass(milliseconds(6'000), {2});
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 2);
  EXPECT_EQ(lost->absence, Absence::kSilent);
}

TEST_F(DetectorTest, SlowRankWithMicroStepsIsNotStuck) {
  Watch(2);
  progress(0) = {.phase = Phase::kReduce, .update = 7, .median_update_ms = 100};
  progress(1) = {.phase = Phase::kCompute, .update = 7, .median_update_ms = 100};
  for (int i = 0; i < 20; ++i) {
    ++progress(1).micro_step;
    EXPECT_FALSE(Pass(milliseconds(4'000)));
  }
}

TEST_F(DetectorTest, LongStepsExtendLimit) {
  Watch(2);
  progress(0) = {.phase = Phase::kReduce, .update = 7, .median_update_ms = 2'000};
  progress(1) = {.phase = Phase::kCompute, .update = 7, .median_update_ms = 2'000};
  EXPECT_FALSE(Pass(milliseconds(19'000)));
  EXPECT_TRUE(Pass(milliseconds(2'000)));
}

TEST_F(DetectorTest, ReportsNoneStuckWithoutACore) {
  Watch(2);
  progress(0) = {.phase = Phase::kReduce, .update = 7, .median_update_ms = 100};
  progress(1) = {.phase = Phase::kCompute, .update = 7, .median_update_ms = 100};
  for (int i = 0; i < 60; ++i) {
    progress(1).starved_ms += 950;
    EXPECT_FALSE(Pass(milliseconds(1'000)));
  }
}

TEST_F(DetectorTest, ReportsRankStuckInEvaluation) {
  Watch(3);
  for (const int rank : {0, 1}) {
    progress(rank) = {.phase = Phase::kReduce, .update = 8, .median_update_ms = 100};
  }
  progress(2) = {.phase = Phase::kEvaluate, .update = 8, .median_update_ms = 100};
  EXPECT_FALSE(Pass(milliseconds(60'000))) << "its first batch may take long";
  for (progress(2).micro_step = 1; progress(2).micro_step < 20; ++progress(2).micro_step) {
    EXPECT_FALSE(Pass(milliseconds(4'000))) << "slow batches";
  }
  const auto lost = Pass(milliseconds(6'000));
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 2);
  EXPECT_EQ(lost->absence, Absence::kStalled);
}

TEST_F(DetectorTest, AllowsLongLoadsAndSaves) {
  for (const Phase phase : {Phase::kLoad, Phase::kSave}) {
    Watch(2);
    progress(0) = {.phase = Phase::kReduce, .update = 7, .median_update_ms = 100};
    progress(1) = {.phase = phase, .micro_step = 3, .update = 7, .median_update_ms = 100};
    EXPECT_FALSE(Pass(milliseconds(60'000))) << Name(phase);
  }
}

// Rank 2 waits for the message of rank 1, the stage before it.
TEST_F(DetectorTest, ReportsNoneStuckWhileARankLoads) {
  Watch(3);
  for (int rank = 0; rank < 3; ++rank) {
    progress(rank) = {.phase = Phase::kCompute, .update = 7, .median_update_ms = 100};
  }
  progress(0).phase = Phase::kReduce;
  progress(1).phase = Phase::kLoad;
  EXPECT_FALSE(Pass(milliseconds(60'000)));
  progress(1).phase = Phase::kReduce;
  const auto lost = Pass(milliseconds(500));
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->rank, 2);
}

}  // namespace
}  // namespace gaccd::heartbeat
