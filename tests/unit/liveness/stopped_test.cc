#include <gtest/gtest.h>

#include "collectives/liveness/heartbeat/heartbeat.h"
#include "collectives/liveness/heartbeat/loops.h"

namespace gaccd {
namespace {

using std::chrono::milliseconds;

TEST(HeartbeatShared, MeasuresTimeItsProcessDidNotRun) {
  HeartbeatShared shared;
  std::chrono::steady_clock::time_point now(std::chrono::seconds(1000));
  EXPECT_EQ(shared.StoppedTime(now).count(), 0);
  for (int pass = 0; pass < 10; ++pass) shared.RecordRunning(now += heartbeat::kTick);
  EXPECT_EQ(shared.StoppedTime(now + heartbeat::kTick).count(), 0);
  // Also before the thread itself has run again.
  const auto stopped = milliseconds(1'000) - heartbeat::kTick / 2;
  EXPECT_EQ(shared.StoppedTime(now += milliseconds(1'000)), stopped);
  shared.RecordRunning(now);
  EXPECT_EQ(shared.StoppedTime(now), stopped);
  shared.RecordRunning(now += milliseconds(1'000));
  EXPECT_EQ(shared.StoppedTime(now), 2 * stopped);
}

}  // namespace
}  // namespace gaccd
