#include "collectives/liveness/deadline/deadline.h"

#include <gtest/gtest.h>

namespace gaccd {
namespace {

using std::chrono::milliseconds;
using Clock = Deadline::Clock;

TEST(DeadlineTest, SplitsBound) {
  const Clock::time_point start = Clock::now();
  Deadline deadline(milliseconds(1000), start);
  EXPECT_FALSE(deadline.PeersAreLate(start + milliseconds(699)));
  EXPECT_TRUE(deadline.PeersAreLate(start + milliseconds(700)));
  EXPECT_NEAR(std::chrono::duration<double>(deadline.TimeToFindMissingRanks()).count(), 0.150,
              1e-6);
}

TEST(DeadlineTest, IgnoresPauseOfProcess) {
  const Clock::time_point start = Clock::now();
  Deadline deadline(milliseconds(10'000), start);
  EXPECT_FALSE(deadline.PeersAreLate(start + milliseconds(500)));
  // Suspended for an hour: 500 ms of the budget are used when it wakes up.
  const Clock::time_point awake = start + std::chrono::hours(1);
  EXPECT_FALSE(deadline.PeersAreLate(awake));
  EXPECT_EQ(deadline.Elapsed(awake), milliseconds(500));
}

TEST(DeadlineTest, ShortWaitsAreNoPause) {
  const Clock::time_point start = Clock::now();
  Deadline deadline(milliseconds(10'000), start);
  for (int ms = 0; ms < 7000; ms += 900) {
    EXPECT_FALSE(deadline.PeersAreLate(start + milliseconds(ms)));
  }
  EXPECT_TRUE(deadline.PeersAreLate(start + milliseconds(7000)));
}

}  // namespace
}  // namespace gaccd
