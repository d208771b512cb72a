#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "daemon/config/job_text.h"
#include "daemon/train/nonfinite_handler.h"
#include "tests/support/fp16_golden.h"
#include "tests/support/status_matchers.h"

namespace gaccd::tests {
namespace {

TEST(LossScale, EqualsGradScaler) {
  const auto job = ValueOrThrow(LoadJob(GACCD_GOLDEN_DIR "/fp16.txtpb"));
  const std::vector<Fp16Step> steps = ReadFp16Steps(GACCD_GOLDEN_DIR "/fp16.txt");
  ASSERT_GT(steps.size(), 30U);
  LossScale scale(job.loss_scale);
  for (const Fp16Step& step : steps) {
    EXPECT_EQ(scale.scale(), step.loss_scale) << step.step;
    EXPECT_TRUE(scale.Update(step.skipped == 0).ok());
    EXPECT_EQ(scale.state().growth_tracker, step.growth_tracker) << step.step;
    // As one that continues from a checkpoint here.
    LossScale next(job.loss_scale);
    next.Restore(scale.state());
    scale = next;
  }
}

TEST(LossScale, StaysFiniteInFloat) {
  LossScale scale({.init_scale = 0x1p127, .growth_interval = 1, .least_scale = 1});
  EXPECT_TRUE(scale.Update(true).ok());
  EXPECT_EQ(scale.scale(), 0x1p127);
}

TEST(LossScale, EndsRunBelowMin) {
  LossScale scale({.init_scale = 4, .growth_interval = 2, .least_scale = 1});
  EXPECT_TRUE(scale.Update(false).ok());
  EXPECT_TRUE(scale.Update(false).ok());
  EXPECT_THAT(scale.Update(false),
              IsError(ErrorKind::kNoRequeue, "loss_scale.least_scale, 1, found 0.5"));
}

}  // namespace
}  // namespace gaccd::tests
