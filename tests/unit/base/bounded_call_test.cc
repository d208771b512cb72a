#include "collectives/base/bounded_call.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>

namespace gaccd {
namespace {

using namespace std::chrono_literals;

TEST(BoundedCallTest, ACallThatReturnsIsWaitedFor) {
  std::atomic<bool> done = false;
  EXPECT_TRUE(CallWithin(60s, [&] { done = true; }));
  EXPECT_TRUE(done);
}

TEST(BoundedCallTest, ACallThatHangsIsLeftBehind) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  EXPECT_FALSE(CallWithin(10ms, [gate, ended] {
    gate->get_future().wait();
    ended->set_value();
  }));
  gate->set_value();
  ended->get_future().wait();
}

}  // namespace
}  // namespace gaccd
