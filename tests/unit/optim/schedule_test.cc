#include "daemon/optim/schedule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(ScheduleTest, ConstantIsRateTimesFactor) {
  for (const std::int64_t u : {0, 7, 99}) {
    EXPECT_DOUBLE_EQ(LearningRate({}, 0.4, 1.28, u, 100), 0.512);
  }
}

TEST(ScheduleTest, WarmupReachesFullRate) {
  const ScheduleSpec spec{4, std::monostate{}};
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 0, 100), 0.25);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 1, 100), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 3, 100), 1);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 4, 100), 1);
}

// Without warm-up: torch.optim.lr_scheduler.CosineAnnealingLR(T_max = n - 1, eta_min = f * lr).
TEST(ScheduleTest, CosineEndsAtFinalRatio) {
  const ScheduleSpec spec{0, CosineSpec{0.1}};
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 0, 101), 2);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 50, 101), 2 * 0.55);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 25, 101),
                   2 * (0.1 + 0.45 * (1 + std::cos(std::numbers::pi / 4))));
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 100, 101), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 150, 101), 0.2);
}

TEST(ScheduleTest, CosineStartsAfterWarmup) {
  const ScheduleSpec spec{10, CosineSpec{0}};
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 9, 111), 1);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 10, 111), 1);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 60, 111), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 110, 111), 0);
}

// Without warm-up: torch.optim.lr_scheduler.LinearLR(1, f, total_iters = n - 1).
TEST(ScheduleTest, LinearEndsAtFinalRatio) {
  const ScheduleSpec spec{10, LinearDecaySpec{.final_ratio = 0.1}};
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 4, 111), 1);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 10, 111), 2);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 35, 111), 2 * (1 - 0.9 * 0.25));
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 110, 111), 0.2);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 2, 1, 150, 111), 0.2);
}

TEST(ScheduleTest, LinearHoldsTheFullRateFirst) {
  const ScheduleSpec spec{0, LinearDecaySpec{.final_ratio = 0, .hold_ratio = 0.75}};
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 75, 101), 1);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 80, 101), 0.8);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 100, 101), 0);
  EXPECT_DOUBLE_EQ(LearningRate({0, LinearDecaySpec{.hold_ratio = 1}}, 1, 1, 100, 101), 1);
}

TEST(ScheduleTest, ShortRunsNeverDivideByZero) {
  for (std::int64_t total = 1; total < 6; ++total) {
    for (std::int64_t warmup = 0; warmup < 8; ++warmup) {
      for (std::int64_t u = 0; u < total; ++u) {
        for (const ScheduleSpec& spec :
             {ScheduleSpec{warmup, CosineSpec{0}}, ScheduleSpec{warmup, LinearDecaySpec{}},
              ScheduleSpec{warmup, LinearDecaySpec{.hold_ratio = 1}}}) {
          const double lr = LearningRate(spec, 1, 1, u, total);
          ASSERT_TRUE(lr >= 0 && lr <= 1) << total << " " << warmup << " " << u << ": " << lr;
        }
      }
    }
  }
}

TEST(ScheduleTest, StepDecaysEveryNUpdates) {
  const ScheduleSpec spec{0, StepDecaySpec{30, 0.1}};
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 29, 100), 1);
  EXPECT_DOUBLE_EQ(LearningRate(spec, 1, 1, 30, 100), 0.1);
  EXPECT_NEAR(LearningRate(spec, 1, 1, 60, 100), 0.01, 1e-15);
}

void ExpectRefused(const ScheduleSpec& spec, const char* text) {
  EXPECT_THAT(CheckSchedule(spec), IsError(ErrorKind::kConfig, text)) << text;
}

TEST(ScheduleTest, RefusesBadValuesByName) {
  EXPECT_TRUE(CheckSchedule({}).ok());
  EXPECT_TRUE(CheckSchedule({5, CosineSpec{0.1}}).ok());
  ExpectRefused({-1, std::monostate{}}, "warmup_updates must be >= 0, found -1");
  ExpectRefused({0, StepDecaySpec{0, 0.1}}, "every_updates must be >= 1, found 0");
  ExpectRefused({0, StepDecaySpec{1, -2}}, "gamma must be >= 0 and finite, found -2");
  ExpectRefused({0, LinearDecaySpec{.final_ratio = -1}}, "linear final_ratio must be >= 0");
  ExpectRefused({0, LinearDecaySpec{.hold_ratio = 1.5}}, "hold_ratio must be in [0, 1], found 1.5");
  ExpectRefused({0, CosineSpec{std::numeric_limits<double>::infinity()}}, "found inf");
  ExpectRefused({0, CosineSpec{std::numeric_limits<double>::quiet_NaN()}}, "found nan");
}

}  // namespace
}  // namespace gaccd
