#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/thread.h"
#include "daemon/device/cpu/matmul.h"
#include "daemon/stop/stop_requests.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using Seconds = TimeLeft::Seconds;

TEST(ParseSignals, NamesWithAndWithoutSig) {
  EXPECT_EQ(*ParseSignals("USR2,TERM"), (std::vector<int>{SIGUSR2, SIGTERM}));
  EXPECT_EQ(*ParseSignals("SIGUSR1"), (std::vector<int>{SIGUSR1}));
  EXPECT_EQ(*ParseSignals("TERM,TERM"), (std::vector<int>{SIGTERM}));
  EXPECT_EQ(*ParseSignals(""), std::vector<int>{});
  for (const char* wrong : {"KILL", "HUP", "usr2", "USR2;TERM", ",", "15", "SIG"}) {
    EXPECT_THAT(ParseSignals(wrong), HasKind(ErrorKind::kUsage)) << wrong;
  }
}

TEST(StopSignals, OneStopsTwoStopNowHupSaves) {
  auto signals =
      ValueOrThrow(StopSignals::Install({SIGUSR2, SIGTERM}, std::chrono::milliseconds(0)));
  EXPECT_EQ(signals->request(), StopRequest::kNone);
  raise(SIGHUP);
  EXPECT_EQ(signals->request(), StopRequest::kSave);
  signals->Saved();
  EXPECT_EQ(signals->request(), StopRequest::kNone);
  raise(SIGUSR2);
  EXPECT_EQ(signals->request(), StopRequest::kStop);
  EXPECT_EQ(signals->stop_signal(), SIGUSR2);
  signals->Saved();
  EXPECT_EQ(signals->request(), StopRequest::kStop) << "a request to stop is not forgotten";
  raise(SIGTERM);
  EXPECT_EQ(signals->request(), StopRequest::kStopNow);
  EXPECT_EQ(SignalName(signals->stop_signal()), "SIGTERM");
}

// As a caller that blocks signals leaves them.
TEST(StopSignals, InstallUnblocksSignals) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  auto signals = ValueOrThrow(StopSignals::Install({SIGUSR2}, std::chrono::milliseconds(0)));
  raise(SIGUSR2);
  EXPECT_EQ(signals->request(), StopRequest::kStop);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

// Hundreds of them, some while oneDNN's stack pointer is in a buffer.
TEST(StopSignals, SignalDuringProductKeepsHeap) {
  constexpr std::int64_t kSide = 128;
  constexpr std::int64_t kDepth = 512;
  const std::vector<float> ones(kDepth * kSide, 1);
  std::vector<float> sums(kSide * kSide);
  auto signals = ValueOrThrow(StopSignals::Install({SIGTERM}));
  std::atomic<bool> over{false};
  auto sender = ValueOrThrow(StartThread("the sender", [&over, to = pthread_self()] {
    while (!over) {
      pthread_kill(to, SIGHUP);
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  }));
  for (int i = 0; i < 1000; ++i) {
    EXPECT_TRUE(
        TransposedProduct(ones.data(), ones.data(), kSide, kSide, kDepth, false, sums.data()).ok());
  }
  over = true;
  sender.join();
  EXPECT_EQ(sums, std::vector<float>(kSide * kSide, kDepth));
  EXPECT_EQ(signals->request(), StopRequest::kSave);
}

// Runs `body` again, until it took less than `most`: a busy machine may stop it between two
// signals.
template <typename Body>
void Within(std::chrono::milliseconds most, const Body& body) {
  std::chrono::steady_clock::time_point start;
  do {
    start = std::chrono::steady_clock::now();
    body();
  } while (std::chrono::steady_clock::now() - start >= most);
}

TEST(StopSignals, BurstIsOneRequest) {
  constexpr std::chrono::milliseconds kBurst{200};
  Result<std::unique_ptr<StopSignals>> signals = std::unique_ptr<StopSignals>();
  std::chrono::steady_clock::time_point before;
  Within(kBurst, [&] {
    (*signals).reset();  // the handlers of before come back first
    signals = StopSignals::Install({SIGUSR2, SIGTERM}, kBurst);
    ASSERT_TRUE(signals.ok());
    EXPECT_FALSE((*signals)->term_time());
    before = std::chrono::steady_clock::now();
    raise(SIGUSR2);
    raise(SIGUSR2);
    raise(SIGTERM);
  });
  EXPECT_EQ((*signals)->request(), StopRequest::kStop) << "slurmstepd and srun both hand it on";
  EXPECT_TRUE((*signals)->was_received(SIGUSR2) && (*signals)->was_received(SIGTERM));
  EXPECT_FALSE((*signals)->was_received(SIGINT));
  const auto first = (*signals)->term_time();
  ASSERT_TRUE(first);
  EXPECT_GE(*first, before);
  EXPECT_LE(*first, std::chrono::steady_clock::now());
  std::this_thread::sleep_for(kBurst + std::chrono::milliseconds(50));
  raise(SIGTERM);
  EXPECT_EQ((*signals)->request(), StopRequest::kStopNow);
  EXPECT_EQ((*signals)->term_time(), first) << "counts from the first";
}

TEST(StopSignals, CtrlCTwiceStopsNowSooner) {
  Result<std::unique_ptr<StopSignals>> signals = std::unique_ptr<StopSignals>();
  Within(std::chrono::milliseconds(100), [&] {
    (*signals).reset();
    signals = StopSignals::Install({SIGTERM}, std::chrono::milliseconds(2000));
    ASSERT_TRUE(signals.ok());
    raise(SIGINT);
    raise(SIGINT);
  });
  EXPECT_EQ((*signals)->request(), StopRequest::kStop);
  usleep(150'000);
  raise(SIGINT);
  EXPECT_EQ((*signals)->request(), StopRequest::kStopNow);
  EXPECT_EQ((*signals)->stop_signal(), SIGINT);
}

TEST(StopSignals, RestoresHandlersAndStartsFresh) {
  struct sigaction mine {};
  mine.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGUSR2, &mine, nullptr), 0);
  {
    const auto signals = ValueOrThrow(StopSignals::Install({SIGUSR2}));
    raise(SIGUSR2);
  }
  raise(SIGUSR2);  // ignored again: the test continues
  auto signals = StopSignals::Install({SIGTERM});
  EXPECT_EQ((*signals)->request(), StopRequest::kNone);
}

TEST(TimeLeft, EarlierEndCounts) {
  const auto at = [](int seconds) {
    return std::chrono::steady_clock::time_point(std::chrono::seconds(seconds));
  };
  EXPECT_FALSE(FindTimeLeft({}, at(1000), {}, Seconds(25)).least());
  EXPECT_EQ(FindTimeLeft(at(1300), at(1000), {}, Seconds(25)).least(), Seconds(300));
  EXPECT_EQ(FindTimeLeft(at(1300), at(1000), Seconds(3), Seconds(25)).least(), Seconds(22));
  EXPECT_EQ(FindTimeLeft(at(1010), at(1000), Seconds(3), Seconds(25)).least(), Seconds(10));
}

TEST(TimeLeft, SaveNeedsTimeAndReserve) {
  EXPECT_TRUE(SaveFits({}, Seconds(1e6)));
  EXPECT_TRUE(SaveFits({.job = Seconds(16), .grace = {}}, Seconds(10)));
  EXPECT_FALSE(SaveFits({.job = Seconds(15.9), .grace = {}}, Seconds(10)));
  EXPECT_FALSE(SaveFits({.job = Seconds(100), .grace = Seconds(0.5)}, Seconds(0)));
}

template <typename Condition>
bool Becomes(const Condition& condition) {
  for (int i = 0; i < 12'000 && !condition(); ++i) usleep(5'000);
  return condition();
}

TEST(RequestFiles, AreSeenAndSaveIsServed) {
  const std::string dir = testing::TempDir() + "/requests-" + std::to_string(getpid());
  std::filesystem::create_directory(dir);
  std::ofstream(dir + "/SAVE").close();
  RequestFiles files(dir, {.pause = std::chrono::milliseconds(20)});
  EXPECT_EQ(files.request(), StopRequest::kSave) << "there before: seen at once";
  files.Saved();
  EXPECT_EQ(files.request(), StopRequest::kNone);
  EXPECT_TRUE(Becomes([&] { return !std::filesystem::exists(dir + "/SAVE"); }));
  std::ofstream(dir + "/STOP").close();
  std::ofstream(dir + "/SAVE").close();
  EXPECT_TRUE(Becomes([&] { return files.request() == StopRequest::kStop; }));
  files.Saved();
  EXPECT_TRUE(Becomes([&] { return !std::filesystem::exists(dir + "/SAVE"); }));
  EXPECT_EQ(files.request(), StopRequest::kStop) << "a request to stop is not forgotten";
  std::filesystem::remove(dir + "/STOP");
  EXPECT_TRUE(Becomes([&] { return files.request() == StopRequest::kNone; }));
  std::filesystem::remove_all(dir);
  EXPECT_EQ(RequestFiles("").request(), StopRequest::kNone);
}

TEST(RequestFiles, ReportsUnremovableFile) {
  const std::string dir = testing::TempDir() + "/kept-" + std::to_string(getpid());
  std::filesystem::create_directories(dir + "/SAVE");  // a folder: unlink() refuses
  std::atomic<bool> reported = false;
  RequestFiles files(dir, {.warn = [&](const std::string& text) {
                       reported = text.find("cannot be removed") != std::string::npos;
                     }});
  EXPECT_EQ(files.request(), StopRequest::kSave);
  files.Saved();
  EXPECT_TRUE(Becomes([&] { return reported.load(); }));
  std::filesystem::remove_all(dir);
}

// Training asks while the file system hangs.
TEST(RequestFiles, DoesNotWaitForHangingFolder) {
  std::atomic<int> looks = 0;
  std::atomic<bool> hangs = true;
  const auto start = std::chrono::steady_clock::now();
  {
    RequestFiles files("/nowhere",
                       {.pause = std::chrono::milliseconds(1), .exists = [&](const std::string&) {
                          for (++looks; hangs;) usleep(1'000);
                          return true;
                        }});
    EXPECT_EQ(looks, 1);
    EXPECT_EQ(files.request(), StopRequest::kNone);
    files.Saved();
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10)) << "of 1 s";
    hangs = false;
    EXPECT_TRUE(Becomes([&] { return files.request() == StopRequest::kStop; }));
  }
}

TEST(RequestFiles, AbandonsHangingCheckAtEnd) {
  const auto hangs = std::make_shared<std::atomic<bool>>(true);
  const auto left = std::make_shared<std::atomic<bool>>(false);
  {
    const RequestFiles files("/nowhere", {.exists = [hangs, left](const std::string&) {
                               while (*hangs) usleep(1'000);
                               *left = true;
                               return false;
                             }});
  }
  EXPECT_FALSE(*left);
  *hangs = false;
  EXPECT_TRUE(Becomes([&] { return left->load(); }));
}

}  // namespace
}  // namespace gaccd
