#include "collectives/base/thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>

#include "tests/support/status_matchers.h"

namespace gaccd {

namespace {

using namespace std::chrono_literals;

TEST(BoundedCallTest, WaitsForCall) {
  std::atomic<bool> done = false;
  EXPECT_TRUE(CallWithin(60s, [&] { done = true; }));
  EXPECT_TRUE(done);
}

TEST(BoundedCallTest, AbandonsHangingCall) {
  const auto gate = std::make_shared<std::promise<void>>();
  const auto ended = std::make_shared<std::promise<void>>();
  EXPECT_FALSE(CallWithin(10ms, [gate, ended] {
    gate->get_future().wait();
    ended->set_value();
  }));
  gate->set_value();
  ended->get_future().wait();
}

TEST(BoundedCallTest, RunsOtherWorkWhileWaiting) {
  const auto gate = std::make_shared<std::promise<void>>();
  int calls = 0;
  EXPECT_TRUE(CallWithin(
      60s, [gate] { gate->get_future().wait(); },
      [&] {
        if (++calls == 2) gate->set_value();
      }));
  EXPECT_GE(calls, 2);
}

TEST(AbandonableThreadTest, JoinsOnceIfStarted) {
  AbandonableThread none;
  EXPECT_TRUE(none.Join(0ms));
  const auto gate = std::make_shared<std::promise<void>>();
  auto thread =
      ValueOrThrow(AbandonableThread::Start("a test", [gate] { gate->get_future().wait(); }));
  EXPECT_FALSE(thread.Join(10ms));
  EXPECT_TRUE(thread.Join(0ms)) << "was left behind before";
  gate->set_value();
}

// What its work shares with a test.
struct Calls {
  std::atomic<int> begun = 0;
  std::atomic<bool> may_return = true;

  void Work() {
    ++begun;
    while (!may_return) std::this_thread::sleep_for(1ms);
  }
  bool Reach(int calls) const {
    for (int i = 0; i < 10'000 && begun < calls; ++i) std::this_thread::sleep_for(1ms);
    return begun == calls;
  }
};

TEST(WorkerThreadTest, RunsAgainIfWokenMeanwhile) {
  const auto calls = std::make_shared<Calls>();
  auto worker = ValueOrThrow(WorkerThread::Start("a test", [calls] { calls->Work(); }));
  EXPECT_EQ(calls->begun, 0);
  calls->may_return = false;
  worker->Wake();
  EXPECT_TRUE(calls->Reach(1));
  worker->Wake();
  calls->may_return = true;
  EXPECT_TRUE(calls->Reach(2));
  EXPECT_TRUE(worker->End(60s));
  worker->Wake();
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(calls->begun, 2) << "after End()";
}

TEST(WorkerThreadTest, RunsEveryPeriodAndIsAbandonedIfItHangs) {
  const auto calls = std::make_shared<Calls>();
  auto worker = ValueOrThrow(WorkerThread::Start(
      "a test", [calls] { calls->Work(); }, 1ms));
  for (int i = 0; i < 10'000 && calls->begun < 3; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_GE(calls->begun, 3);
  calls->may_return = false;
  const int begun = calls->begun;
  for (int i = 0; i < 1'000 && calls->begun == begun; ++i) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(worker->End(10ms));
  calls->may_return = true;
}

}  // namespace

}  // namespace gaccd
