#include "daemon/telemetry/step_stats.h"

#include <gtest/gtest.h>

#include <thread>

namespace gaccd {
namespace {

TEST(StepStatsTest, IsEmptyAtStart) {
  const StepStats stats;
  EXPECT_EQ(stats.Quantile(0.5), 0);
  EXPECT_EQ(stats.Mean(), 0);
  EXPECT_EQ(stats.Remaining(100), 0);
}

TEST(StepStatsTest, QuantilesByNearestRank) {
  StepStats stats;
  for (int i = 100; i >= 1; --i) stats.Add(i);
  EXPECT_EQ(stats.Quantile(0.50), 50);
  EXPECT_EQ(stats.Quantile(0.99), 99);
  EXPECT_EQ(stats.Quantile(1), 100);
  EXPECT_DOUBLE_EQ(stats.Mean(), 50.5);
  EXPECT_DOUBLE_EQ(stats.Remaining(4), 202);
  EXPECT_EQ(stats.Remaining(-3), 0);
}

TEST(StepStatsTest, SlowUpdateRaisesTailQuantile) {
  StepStats stats;
  for (int i = 0; i < 50; ++i) stats.Add(0.1);
  stats.Add(9);
  EXPECT_EQ(stats.Quantile(0.50), 0.1);
  EXPECT_EQ(stats.Quantile(0.99), 9);
}

TEST(StepStatsTest, DropsValuesOutsideWindow) {
  StepStats stats;
  stats.Add(1000);
  for (std::size_t i = 0; i < StepStats::kWindow; ++i) stats.Add(1);
  EXPECT_EQ(stats.Quantile(1), 1);
  EXPECT_EQ(stats.Mean(), 1);
  EXPECT_EQ(stats.count(), StepStats::kWindow);
}

// A run that continues from update 100 had a long start, which does not come again.
TEST(StepClockTest, ExcludesTimeBeforeFirstUpdate) {
  StepClock clock;
  StepRecord step{.step = 101, .steps_total = 111, .samples = 50, .dur_s = 0.25};
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const StepRates first = clock.Count(step);
  EXPECT_EQ(first.samples_per_s, 200);
  EXPECT_EQ(first.dur_p50_s, 0.25);
  EXPECT_EQ(first.eta_s, 2.5);
  // The time between two updates does: an evaluation, a save.
  step.step = 102;
  step.dur_s = 0.001;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const StepRates second = clock.Count(step);
  EXPECT_EQ(second.dur_p50_s, 0.001);
  EXPECT_GE(second.eta_s, 9 * (0.25 + 0.02) / 2);
}

// 9 of 10 micro-steps were restored from a checkpoint inside the update.
TEST(StepClockTest, RatesExcludeRestoredMicroSteps) {
  StepClock clock;
  const StepRecord step{
      .step = 101, .steps_total = 111, .samples = 100, .dur_s = 0.5, .own_share = 0.1};
  const StepRates rates = clock.Count(step);
  EXPECT_DOUBLE_EQ(rates.samples_per_s, 20);
  EXPECT_DOUBLE_EQ(rates.dur_p50_s, 5);
  EXPECT_DOUBLE_EQ(rates.eta_s, 50);
}

// Later updates of a target schedule take longer.
TEST(StepClockTest, TimeLeftFollowsSamplesLeft) {
  StepClock clock;
  StepRecord step{.step = 1, .steps_total = 3, .samples = 50, .dur_s = 0.25, .samples_left = 6000};
  EXPECT_EQ(clock.Count(step).eta_s, 30);
  step.step = 2;
  step.samples = 3000;
  step.dur_s = 15;
  step.samples_left = 3000;
  EXPECT_DOUBLE_EQ(clock.Count(step).eta_s, 15);
}

TEST(LineClockTest, PrintsSlowUpdatesAndLastOne) {
  const LineClock::Clock::time_point start;
  const auto at = [start](std::int64_t seconds) { return start + std::chrono::seconds(seconds); };
  LineClock lines(100, start);
  StepRecord step{.step = 1, .steps_total = 250, .samples = 50};
  EXPECT_EQ(lines.Due(step, at(4)), std::nullopt);
  step.step = 2;
  EXPECT_EQ(lines.Due(step, at(10)), 10) << "100 samples in 10 s";
  step.step = 3;
  EXPECT_EQ(lines.Due(step, at(19)), std::nullopt);
  step.step = 100;
  EXPECT_EQ(lines.Due(step, at(20)), 10);
  step.step = 249;
  EXPECT_EQ(lines.Due(step, at(21)), std::nullopt);
  step.step = 250;
  EXPECT_EQ(lines.Due(step, at(22)), 50) << "the last";
}

TEST(RankStepsTest, RecordIsMeanSincePreviousRecord) {
  const RankSteps::Clock::time_point start;
  const auto at = [start](int seconds) { return start + std::chrono::seconds(seconds); };
  RankSteps ranks(std::chrono::seconds(60));
  EXPECT_FALSE(ranks.MakeRecord().has_value());
  const auto first = ranks.Add({.step = 7, .dur_s = 4, .data_s = 3}, at(5));
  ASSERT_TRUE(first.has_value()) << "the first update";
  EXPECT_EQ(first->updates, 1);
  EXPECT_EQ(first->wait_s, 0);
  EXPECT_GT(first->memory_bytes, 1 << 20);
  EXPECT_FALSE(
      ranks.Add({.step = 8, .dur_s = 1, .fwd_bwd_s = 0.5, .reduce_s = 0.25, .wait_s = 0.25}, at(64))
          .has_value());
  const auto second =
      ranks.Add({.step = 9, .dur_s = 2, .fwd_bwd_s = 1, .opt_s = 1, .wait_s = 0.5}, at(65));
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->step, 9);
  EXPECT_EQ(second->updates, 2);
  EXPECT_EQ(second->dur_s, 1.5);
  EXPECT_EQ(second->dur_max_s, 2);
  EXPECT_EQ(second->fwd_bwd_s, 0.75);
  EXPECT_EQ(second->reduce_s, 0.125);
  EXPECT_EQ(second->opt_s, 0.5);
  EXPECT_EQ(second->wait_s, 0.375);
  EXPECT_EQ(second->data_s, 0);
  EXPECT_FALSE(ranks.Add({.step = 10}, at(66)).has_value());
  EXPECT_EQ(ranks.MakeRecord()->step, 10);
}

TEST(StepClockTest, WallRateIncludesTimeBetweenUpdates) {
  StepClock clock;
  const StepRecord step{.step = 1, .steps_total = 9, .samples = 50, .dur_s = 0.001};
  EXPECT_GT(clock.Count(step).wall_samples_per_s, 0);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const StepRates rates = clock.Count(step);
  EXPECT_EQ(rates.samples_per_s, 50'000);
  EXPECT_LE(rates.wall_samples_per_s, 100 / 0.020);
}

}  // namespace
}  // namespace gaccd
