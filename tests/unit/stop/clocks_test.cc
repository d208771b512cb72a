#include "daemon/stop/clocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr double kNow = 1'800'000'000;
const std::vector<std::string> kClockHosts{"n0", "n1", "n2", "n3", "n4"};

// What every rank finds when its wall clock shows kNow + ahead[rank].
std::vector<Clocks> Compare(const std::vector<double>& ahead) {
  std::vector<std::optional<Clocks>> found(ahead.size());
  const Status status =
      RunThreadRanks(static_cast<int>(ahead.size()), {}, [&](Communicator& comm) -> Status {
        const auto rank = static_cast<std::size_t>(comm.rank());
        auto clocks = Clocks::Compare(comm, [&] { return kNow + ahead[rank]; });
        if (clocks.ok()) found[rank] = *std::move(clocks);
        return clocks.status();
      });
  EXPECT_TRUE(status.ok()) << status.message();
  std::vector<Clocks> all;
  for (auto& one : found) all.push_back(std::move(one).value());
  return all;
}

double SecondsUntil(Clocks::Steady::time_point time) {
  return std::chrono::duration<double>(time - Clocks::Steady::now()).count();
}

TEST(ClocksTest, ReportsAndCorrectsAnHourAhead) {
  for (const Clocks& clocks : Compare({0.3, 0, 3600, -2, 1.5})) {
    EXPECT_THAT(clocks.ahead_s(), ElementsAre(0, 0, testing::DoubleNear(3600, 5), 0, 0));
    EXPECT_THAT(clocks.Warning(kClockHosts), testing::StartsWith("the clock of rank 2 on n2 is 3"));
    EXPECT_THAT(clocks.Warning(kClockHosts), HasSubstr(" s ahead of most ranks'"));
    // On every rank, also on the one whose clock says that the job has ended long ago.
    EXPECT_NEAR(SecondsUntil(clocks.Deadline(static_cast<std::int64_t>(kNow) + 600)), 600, 60);
  }
}

TEST(ClocksTest, WarnsOfClockOfRankZero) {
  const auto all = Compare({-7200, 0, 0});
  EXPECT_THAT(all[1].Warning(kClockHosts),
              testing::StartsWith("the clock of rank 0 on n0 is 7200 s behind"));
  EXPECT_NEAR(SecondsUntil(all[0].Deadline(static_cast<std::int64_t>(kNow) + 600)), 600, 60);
}

TEST(ClocksTest, IgnoresFewSeconds) {
  for (const Clocks& clocks : Compare({0, 4, 2, -1})) EXPECT_EQ(clocks.Warning(kClockHosts), "");
  EXPECT_EQ(Compare({0})[0].Warning(kClockHosts), "");
}

TEST(ClocksTest, AnyEndOfJobIsADeadline) {
  const Clocks clocks = Compare({0})[0];
  EXPECT_LT(SecondsUntil(clocks.Deadline(0)), -1e6);
  EXPECT_GT(SecondsUntil(clocks.Deadline(std::numeric_limits<std::int64_t>::max())), 1e6);
}

}  // namespace
}  // namespace gaccd
