#include "daemon/train/storage_limits.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <new>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using namespace std::chrono_literals;

TEST(StorageLimitsTest, WaitsLongerForMoreBytes) {
  EXPECT_EQ(SaveLimit(60s, 0), 30s);
  EXPECT_EQ(SaveLimit(60s, 1e9), 30s);
  EXPECT_EQ(SaveLimit(60s, 28e9), 560s) << "at 50 MB/s";
  EXPECT_EQ(SaveLimit(1s, 0), 2s);
}

// Also where the other ranks are gone.
TEST(StorageLimitsTest, LongWriteSendsHeartbeats) {
  const auto gate = std::make_shared<std::promise<void>>();
  int ticks = 0;
  const auto tick = [&] {
    if (++ticks == 2) gate->set_value();
    return Status(ErrorKind::kUnavailable, "gone");
  };
  EXPECT_OK(WriteWithin(60s, "a", tick, [gate] {
    gate->get_future().wait();
    return Status::Ok();
  }));
  EXPECT_GE(ticks, 2);
}

TEST(StorageLimitsTest, WriteWithoutMemoryIsAnError) {
  EXPECT_THAT(WriteWithin(60s, "a", nullptr, []() -> Status { throw std::bad_alloc(); }),
              IsError(ErrorKind::kConfig, "no memory for 'a'"));
}

}  // namespace
}  // namespace gaccd
