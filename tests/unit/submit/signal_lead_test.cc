#include "daemon/submit/signal_lead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(ComputeLead, DependsOnMeasuredTimes) {
  EXPECT_EQ(ComputeLead(MeasuredTimes{.update_p99_s = 10.2, .save_s = 40}, {}).seconds, 161);
  EXPECT_THAT(
      ComputeLead(MeasuredTimes{.update_p99_s = 10.2, .save_s = 40}, {}).reason,
      HasSubstr("161 s before the end: twice an update of 10.2 s (p99) and a save of 40 s"));
  const SignalLead shortest = ComputeLead(MeasuredTimes{.update_p99_s = 0.1, .save_s = 2}, {});
  EXPECT_EQ(shortest.seconds, 120);
  EXPECT_THAT(shortest.reason,
              HasSubstr("120 s before the end: at least 120 s; measured: an update "
                        "of 0.1 s (p99) and a save of 2 s."));
  EXPECT_EQ(ComputeLead(MeasuredTimes{.update_p99_s = 9000, .save_s = 9000}, 1'000'000).seconds,
            36'060);
  const SignalLead longest =
      ComputeLead(MeasuredTimes{.update_p99_s = 9e3, .save_s = 9e4}, 1'000'000);
  EXPECT_EQ(longest.seconds, 65'535);
  EXPECT_THAT(longest.reason, HasSubstr("at most 65535 s; measured: "));
  EXPECT_EQ(ComputeLead({}, {}).seconds, kDefaultLead);
  EXPECT_THAT(ComputeLead({}, {}).reason, HasSubstr("nothing was measured"));
}

TEST(ComputeLead, LeavesTimeToTrain) {
  EXPECT_EQ(ComputeLead({}, 3600).seconds, 300);
  const SignalLead lead = ComputeLead({}, 600);
  EXPECT_EQ(lead.seconds, 150);
  EXPECT_FALSE(lead.short_time);
  EXPECT_EQ(ComputeLead({}, 239).seconds, 0);
  EXPECT_EQ(ComputeLead({}, 240).seconds, 60);
  const MeasuredTimes slow{.update_p99_s = 30, .save_s = 100};
  EXPECT_TRUE(ComputeLead(slow, 1200).short_time);
  EXPECT_FALSE(ComputeLead(slow, 1280).short_time);
  EXPECT_EQ(ComputeLead(slow, 1280).seconds, 320);
}

TEST(ParseTimeLimit, AcceptsSbatchFormats) {
  const std::pair<const char*, std::int64_t> cases[] = {
      {"90", 5400},      {"90:30", 5430},      {"24:00:00", 86'400},
      {"2-12", 216'000}, {"2-12:30", 217'800}, {"1-00:00:10", 86'410}};
  for (const auto& [text, seconds] : cases) {
    const auto parsed = ValueOrThrow(ParseTimeLimit(text));
    EXPECT_EQ(parsed, seconds) << text;
  }
  for (const char* none : {"0", "00", "0:0", "0-0", "0:00:00", "UNLIMITED", "INFINITE"}) {
    const auto parsed = ValueOrThrow(ParseTimeLimit(none));
    EXPECT_EQ(parsed, std::nullopt) << none;
  }
  for (const char* wrong : {"", "x", "-1", "1:2:3:4", "1h", "10 ", "1-", "123456789012"}) {
    EXPECT_THAT(ParseTimeLimit(wrong), HasKind(ErrorKind::kUsage)) << wrong;
  }
}

TEST(MeasureRun, UsesLongestAttempt) {
  RunFiles run;
  EXPECT_FALSE(MeasureRun(run.path()).has_value());
  run.Event("000-17", 0, "step", R"(,"step":1,"dur_p99_s":0.5)");
  run.Event("000-17", 1, "save", R"(,"ok":true,"dur_s":7)");
  run.Event("000-17", 2, "save", R"(,"ok":false,"dur_s":99)");
  run.Event("001-17", 3, "step", R"(,"step":2,"dur_p99_s":1.5)");
  run.Event("001-17", 4, "step", R"(,"step":3,"dur_p99_s":1.25)");
  run.Event("001-17", 5, "save", R"(,"ok":true,"dur_s":1e300)");
  const auto times = MeasureRun(run.path());
  ASSERT_TRUE(times.has_value());
  EXPECT_EQ(times->update_p99_s, 1.5);
  EXPECT_EQ(times->save_s, 7);
}

}  // namespace
}  // namespace gaccd
