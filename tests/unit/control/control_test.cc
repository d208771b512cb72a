#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "daemon/control/request_files.h"
#include "daemon/control/stop_signals.h"
#include "daemon/control/time_left.h"

namespace gaccd {
namespace {

using Seconds = TimeLeft::Seconds;

TEST(ParseSignals, NamesWithAndWithoutSig) {
  EXPECT_EQ(*ParseSignals("USR2,TERM"), (std::vector<int>{SIGUSR2, SIGTERM}));
  EXPECT_EQ(*ParseSignals("SIGUSR1"), (std::vector<int>{SIGUSR1}));
  EXPECT_EQ(*ParseSignals("TERM,TERM"), (std::vector<int>{SIGTERM}));
  EXPECT_EQ(*ParseSignals(""), std::vector<int>{});
  for (const char* wrong : {"KILL", "HUP", "usr2", "USR2;TERM", ",", "15", "SIG"}) {
    const auto parsed = ParseSignals(wrong);
    ASSERT_FALSE(parsed.ok()) << wrong;
    EXPECT_EQ(parsed.status().kind(), ErrorKind::kUsage);
  }
}

TEST(StopSignals, OneStopsTwoStopNowAndHupSaves) {
  auto signals = StopSignals::Install({SIGUSR2, SIGTERM}, std::chrono::milliseconds(0));
  ASSERT_TRUE(signals.ok());
  EXPECT_EQ((*signals)->wish(), StopWish::kNone);
  raise(SIGHUP);
  EXPECT_EQ((*signals)->wish(), StopWish::kSave);
  (*signals)->Saved();
  EXPECT_EQ((*signals)->wish(), StopWish::kNone);
  raise(SIGUSR2);
  EXPECT_EQ((*signals)->wish(), StopWish::kStop);
  EXPECT_EQ((*signals)->stop_signal(), SIGUSR2);
  (*signals)->Saved();
  EXPECT_EQ((*signals)->wish(), StopWish::kStop) << "a wish to stop is not forgotten";
  raise(SIGTERM);
  EXPECT_EQ((*signals)->wish(), StopWish::kStopNow);
  EXPECT_EQ(SignalName((*signals)->stop_signal()), "SIGTERM");
}

TEST(StopSignals, ABurstIsOneRequest) {
  auto signals = StopSignals::Install({SIGUSR2, SIGTERM}, std::chrono::milliseconds(200));
  ASSERT_TRUE(signals.ok());
  EXPECT_FALSE((*signals)->since_term());
  raise(SIGUSR2);
  raise(SIGUSR2);
  raise(SIGTERM);
  EXPECT_EQ((*signals)->wish(), StopWish::kStop) << "slurmstepd and srun both hand it on";
  EXPECT_TRUE((*signals)->came(SIGUSR2) && (*signals)->came(SIGTERM));
  EXPECT_FALSE((*signals)->came(SIGINT));
  ASSERT_TRUE((*signals)->since_term());
  EXPECT_LT(*(*signals)->since_term(), Seconds(10));
  usleep(250'000);
  raise(SIGTERM);
  EXPECT_EQ((*signals)->wish(), StopWish::kStopNow);
  EXPECT_GE(*(*signals)->since_term(), Seconds(0.25)) << "counts from the first";
}

TEST(StopSignals, CtrlCTwiceStopsNowSooner) {
  auto signals = StopSignals::Install({SIGTERM}, std::chrono::milliseconds(2000));
  raise(SIGINT);
  raise(SIGINT);
  EXPECT_EQ((*signals)->wish(), StopWish::kStop);
  usleep(150'000);
  raise(SIGINT);
  EXPECT_EQ((*signals)->wish(), StopWish::kStopNow);
  EXPECT_EQ((*signals)->stop_signal(), SIGINT);
}

TEST(StopSignals, TheOldHandlersComeBackAndANewOneStartsFresh) {
  struct sigaction mine {};
  mine.sa_handler = SIG_IGN;
  ASSERT_EQ(sigaction(SIGUSR2, &mine, nullptr), 0);
  {
    auto signals = StopSignals::Install({SIGUSR2});
    ASSERT_TRUE(signals.ok());
    raise(SIGUSR2);
  }
  raise(SIGUSR2);  // ignored again: the test goes on
  auto signals = StopSignals::Install({SIGTERM});
  EXPECT_EQ((*signals)->wish(), StopWish::kNone);
}

TEST(TimeLeft, TheSmallerEndCounts) {
  EXPECT_FALSE(FindTimeLeft({}, 1000, {}, Seconds(25)).least());
  EXPECT_EQ(FindTimeLeft(1300, 1000, {}, Seconds(25)).least(), Seconds(300));
  EXPECT_EQ(FindTimeLeft(1300, 1000, Seconds(3), Seconds(25)).least(), Seconds(22));
  EXPECT_EQ(FindTimeLeft(1010, 1000, Seconds(3), Seconds(25)).least(), Seconds(10));
}

TEST(TimeLeft, ASaveNeedsItsTimeAndAReserve) {
  EXPECT_TRUE(SaveFits({}, Seconds(1e6)));
  EXPECT_TRUE(SaveFits({.job = Seconds(16), .grace = {}}, Seconds(10)));
  EXPECT_FALSE(SaveFits({.job = Seconds(15.9), .grace = {}}, Seconds(10)));
  EXPECT_FALSE(SaveFits({.job = Seconds(100), .grace = Seconds(0.5)}, Seconds(0)));
}

TEST(RequestFiles, AreSeenOnceASecondAndSaveIsServed) {
  const std::string dir = testing::TempDir() + "/requests-" + std::to_string(getpid());
  std::filesystem::create_directory(dir);
  RequestFiles files(dir);
  RequestFiles::Clock::time_point now{std::chrono::hours(1)};
  EXPECT_EQ(files.wish(now), StopWish::kNone);
  std::ofstream(dir + "/SAVE").close();
  EXPECT_EQ(files.wish(now + std::chrono::milliseconds(900)), StopWish::kNone) << "not so often";
  now += std::chrono::seconds(1);
  EXPECT_EQ(files.wish(now), StopWish::kSave);
  EXPECT_TRUE(files.Saved().ok());
  EXPECT_EQ(files.wish(now), StopWish::kNone);
  std::ofstream(dir + "/STOP").close();
  std::ofstream(dir + "/SAVE").close();
  EXPECT_EQ(files.wish(now + std::chrono::seconds(1)), StopWish::kStop);
  EXPECT_TRUE(files.Saved().ok());
  EXPECT_EQ(files.wish(now + std::chrono::seconds(2)), StopWish::kStop);
  EXPECT_FALSE(std::filesystem::exists(dir + "/SAVE"));
  std::filesystem::remove_all(dir);
  EXPECT_EQ(RequestFiles("").wish(now), StopWish::kNone);
}

}  // namespace
}  // namespace gaccd
