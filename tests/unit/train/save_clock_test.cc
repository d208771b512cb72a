#include "daemon/train/save_clock.h"

#include <gtest/gtest.h>

#include <vector>

#include "collectives/comm/threads.h"

namespace gaccd {
namespace {

TEST(SaveClockTest, ChecksRarelyButInTime) {
  EXPECT_EQ(UpdatesUntilNextCheck(600, 600, 0, 0), 1);
  EXPECT_EQ(UpdatesUntilNextCheck(1, 600, 0.125, 4000), 4) << "half of what is left";
  EXPECT_EQ(UpdatesUntilNextCheck(300, 600, 0.125, 4000), 8) << "at most a second";
  EXPECT_EQ(UpdatesUntilNextCheck(20, 25, 0.125, 4000), 2) << "at most a hundredth";
  EXPECT_EQ(UpdatesUntilNextCheck(300, 600, 0.125, 4), 4) << "the pace is not known so well";
  EXPECT_EQ(UpdatesUntilNextCheck(-1, 600, 0.125, 4000), 1);
  // A steady pace: so many messages until 600 s of 10 ms each are over.
  double elapsed = 0;
  std::int64_t updates = 0;
  int looks = 0;
  while (elapsed < 600) {
    const std::int64_t next = UpdatesUntilNextCheck(600 - elapsed, 600, 0.01, updates);
    updates += next;
    elapsed = static_cast<double>(updates) * 0.01;
    ++looks;
  }
  EXPECT_LT(looks, 650) << "of 60,000 updates";
  EXPECT_LT(elapsed, 600.05);
}

TEST(SaveClockTest, UpdateIntervalIsSameAfterRestart) {
  const auto comm = MakeSingle();
  SaveClock clock({.every_updates = 4}, 6);
  std::vector<std::int64_t> saves;
  for (std::int64_t step = 7; step <= 20; ++step) {
    if (*clock.Due(*comm, step)) saves.push_back(step);
  }
  EXPECT_EQ(saves, (std::vector<std::int64_t>{8, 12, 16, 20}));
  SaveClock never({}, 0);
  EXPECT_FALSE(*never.Due(*comm, 1));
}

// Updates of 100 s: the clock is looked at in each of these, too.
TEST(SaveClockTest, UpdateIntervalAppliesBesideTime) {
  const auto comm = MakeSingle();
  SaveClock::Clock::time_point now{};
  SaveClock clock({.every_updates = 4, .every_seconds = 600}, 0, [&] { return now; });
  std::vector<std::int64_t> saves;
  for (std::int64_t step = 1; step <= 12; ++step) {
    now += std::chrono::seconds(100);
    if (*clock.Due(*comm, step)) saves.push_back(step);
  }
  EXPECT_EQ(saves, (std::vector<std::int64_t>{4, 8, 12}));
}

// A larger batch, a slower disk: updates of 0.5 ms, of 100 ms from update 1501 on.
TEST(SaveClockTest, SavesInTimeIfUpdatesBecomeSlower) {
  const auto comm = MakeSingle();
  SaveClock::Clock::time_point now{};
  SaveClock::Clock::time_point saved = now;
  SaveClock clock({.every_seconds = 10}, 0, [&] { return now; });
  int saves = 0;
  for (std::int64_t step = 1; step <= 2500; ++step) {
    now += std::chrono::microseconds(step <= 1500 ? 500 : 100'000);
    if (!*clock.Due(*comm, step)) continue;
    EXPECT_LT(now - saved, std::chrono::seconds(saves == 0 ? 31 : 11)) << "update " << step;
    saved = now;
    ++saves;
  }
  EXPECT_GE(saves, 7);
}

// Updates of 10 s. The clock of rank 1, whose time does not advance, does not count.
TEST(SaveClockTest, IntervalStartsAtLastSave) {
  const Status status = RunThreadRanks(2, {}, [](Communicator& comm) -> Status {
    SaveClock::Clock::time_point now{};
    SaveClock clock({.every_seconds = 600}, 5, [&] { return now; });
    std::vector<std::int64_t> saves;
    for (std::int64_t step = 6; step <= 200; ++step) {
      if (comm.rank() == 0) now += std::chrono::seconds(10);
      GACCD_ASSIGN_OR_RETURN(const bool due, clock.Due(comm, step));
      if (due) saves.push_back(step);
    }
    EXPECT_EQ(saves, (std::vector<std::int64_t>{65, 125, 185})) << "rank " << comm.rank();
    return Status::Ok();
  });
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace gaccd
