// What `gaccd logs` prints of text logs and events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <sstream>
#include <thread>

#include "collectives/base/files.h"
#include "daemon/inspect/watch/logs_command.h"
#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

class LogsTest : public testing::Test {
 protected:
  // A line of a rank's text log.
  void Log(const std::string& attempt, int rank, char level, int second, const std::string& text) {
    char name[64];
    std::snprintf(name, sizeof(name), "r%05d.gaccd.INFO.20261120-030000.47%02d", rank, rank);
    char head[64];
    std::snprintf(head, sizeof(head), "%c20261120 03:%02d:%02d.000000 r%d s4 x.cc:1] ", level,
                  second / 60, second % 60, rank);
    run_.Append(StrCat("attempts/", attempt, "/log/", name), StrCat(head, text, "\n"));
  }
  // The messages that are printed, without their prefix.
  std::string Messages(LogsRequest request) {
    request.folder = run_.path();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const Status status = RunLogsCommand(request);
    notes_ = testing::internal::GetCapturedStderr();
    EXPECT_TRUE(status.ok()) << status.message();
    std::istringstream printed(testing::internal::GetCapturedStdout());
    std::string messages;
    for (std::string line; std::getline(printed, line);) {
      const std::size_t head = line.find("x.cc:1] ");
      messages += (head == std::string::npos ? line : line.substr(head + 8)) + "|";
    }
    return messages;
  }

  RunFiles run_;
  std::string notes_;
};

TEST_F(LogsTest, MergesRanksByTimeWithinAttempts) {
  for (int second = 0; second < 6; ++second) {
    Log("000-812", second % 3, 'I', second, StrCat("a", second));
  }
  Log("001-812", 1, 'I', 1, "of a clock that is behind");
  run_.Append("attempts/000-812/log/gaccd.INFO", "a link to the log of rank 0\n");
  EXPECT_EQ(Messages({}),
            "# attempt 000-812|a0|a1|a2|a3|a4|a5|# attempt 001-812|of a clock that is behind|");
}

TEST_F(LogsTest, KeepsMultilineMessagesTogether) {
  Log("000-812", 0, 'I', 1, "plan\n  240 ranks\n  3072 samples");
  Log("000-812", 1, 'I', 1, "other");
  run_.Append("attempts/000-812/log/r00001.gaccd.INFO.20261120-030000.4701",
              "# 2026-11-20T03:00:02.000000Z 3 lines are lost: full\n");
  Log("000-812", 0, 'I', 3, "end");
  EXPECT_EQ(Messages({}),
            "plan|  240 ranks|  3072 samples|other|"
            "# 2026-11-20T03:00:02.000000Z 3 lines are lost: full|end|");
}

TEST_F(LogsTest, FindsHostByNameWithOrWithoutDomain) {
  run_.Append("attempts/000-812/ranks.tsv", "rank\thost\tnode\n0\tn1\t0\n1\tn2.a\t1\n2\tn2.b\t2\n");
  for (int rank = 0; rank < 3; ++rank) Log("000-812", rank, 'I', rank, StrCat("i", rank));
  EXPECT_EQ(Messages({.filter = {.host = "n1.a"}}), "i0|");
  EXPECT_EQ(Messages({.filter = {.host = "n2"}}), "i1|i2|");
  EXPECT_EQ(Messages({.filter = {.host = "n2.b"}}), "i2|");
}

TEST_F(LogsTest, FiltersByRankHostLevelAndAttempt) {
  run_.Append("attempts/000-812/ranks.tsv",
              "rank\thost\tnode\n0\tn1.cluster\t0\n1\tn1.cluster\t0\n2\tn2.cluster\t1\n");
  for (int rank = 0; rank < 3; ++rank) {
    Log("000-812", rank, 'I', rank, StrCat("i", rank));
    Log("000-812", rank, 'W', 10 + rank, StrCat("w", rank));
  }
  Log("000-812", 2, 'E', 20, "e2");
  EXPECT_EQ(Messages({.filter = {.rank = 1}}), "i1|w1|");
  EXPECT_EQ(Messages({.filter = {.host = "n1"}}), "i0|i1|w0|w1|");
  EXPECT_EQ(Messages({.filter = {.host = "n2.cluster"}}), "i2|w2|e2|");
  EXPECT_THAT(notes_, Not(HasSubstr("no line")));
  EXPECT_EQ(Messages({.filter = {.host = "n"}}), "");
  EXPECT_THAT(notes_, HasSubstr("no line belongs to --host=n"));
  EXPECT_EQ(Messages({.filter = {.rank = 99, .host = "n1"}}), "");
  EXPECT_THAT(notes_, HasSubstr("no line belongs to --rank=99 --host=n1"));
  EXPECT_EQ(Messages({.filter = {.rank = 0, .least_level = 2}}), "");
  EXPECT_THAT(notes_, Not(HasSubstr("no line"))) << "a rank without errors";
  EXPECT_EQ(Messages({.filter = {.least_level = 1}}), "w0|w1|w2|e2|");
  EXPECT_EQ(Messages({.filter = {.rank = 2, .least_level = 2}}), "e2|");
  Log("001-812", 0, 'I', 30, "later");
  EXPECT_EQ(Messages({.attempt = "1"}), "later|");
}

TEST_F(LogsTest, ReasonIsLastError) {
  Log("000-812", 0, 'I', 1, "begin");
  run_.Append("attempts/000-812/verdict.json",
              RunFiles::Line(59, "verdict", 1,
                             R"(,"verdict":"requeue","exit":69,"reason":"rank 2 was killed")"));
  Log("001-812", 0, 'I', 2, "again");
  run_.Append("attempts/001-812/verdict.json",
              RunFiles::Line(60, "verdict", 1, R"(,"verdict":"done","exit":0,"reason":"")"));
  const std::string all = Messages({});
  EXPECT_THAT(all, HasSubstr("begin|E20261120 "));
  EXPECT_THAT(all, HasSubstr(" verdict requeue, exit 69: rank 2 was killed|# attempt 001-812|"));
  EXPECT_THAT(all, testing::EndsWith("again|"));
  EXPECT_THAT(Messages({.filter = {.least_level = 2}}), HasSubstr("rank 2 was killed"));
  EXPECT_EQ(Messages({.attempt = "0", .filter = {.rank = 0}}), "begin|");
}

TEST_F(LogsTest, HandlesTornLinesAndControlCharacters) {
  Log("000-812", 0, 'I', 1, "a\x1b[2Jb");
  run_.Append("attempts/000-812/log/r00000.gaccd.INFO.20261120-030000.4700", "I20261120 03:0");
  EXPECT_EQ(Messages({}), "a\\x1b[2Jb|");
  EXPECT_THAT(notes_, HasSubstr("the last line is cut off"));
}

TEST_F(LogsTest, PrintsEventLinesUnchanged) {
  run_.Event("000-812", 1, "run_start");
  run_.Crash("000-812", 2, 5, R"(,"exit":65)");
  run_.Event("000-812", 3, "step");
  const std::string all = Messages({.events = true});
  EXPECT_EQ(std::ranges::count(all, '|'), 3);
  EXPECT_THAT(all, HasSubstr(RunFiles::Line(3, "step", 2).substr(0, 60)));
  EXPECT_EQ(Messages({.filter = {.rank = 99}, .events = true}), "");
  EXPECT_THAT(notes_, HasSubstr("no line belongs to --rank=99"));
  EXPECT_THAT(Messages({.filter = {.rank = 5}, .events = true}),
              AllOf(HasSubstr("failure"), Not(HasSubstr("step"))));
  EXPECT_THAT(Messages({.filter = {.least_level = 2}, .events = true}),
              AllOf(HasSubstr("failure"), Not(HasSubstr("step"))));
  EXPECT_THAT(Messages({.filter = {.host = "n3"}, .events = true}), HasSubstr("failure"));
}

TEST_F(LogsTest, FollowsUntilRunEnds) {
  const auto status = [&](std::string_view state, std::string_view more) {
    const auto seconds = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    char now[64];
    std::strftime(now, sizeof(now), "%FT%T.000000Z", std::gmtime(&seconds));
    ASSERT_TRUE(ReplaceFile(run_.Path("STATUS.json"),
                            StrCat(R"({"ts":")", now, R"(","state":")", state, "\"", more, "}"),
                            false)
                    .ok());
  };
  status("running", "");
  Log("000-812", 0, 'I', 1, "first");
  run_.Event("000-812", 1, "run_start");
  for (const bool events : {false, true}) {
    status("running", "");
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      Log("000-812", 1, 'I', 2, "second");
      run_.Event("000-812", 2, "second");
      status("done", R"(,"exit":0)");
    });
    EXPECT_THAT(Messages({.events = events, .follow = true}), HasSubstr("second"));
    EXPECT_THAT(notes_, HasSubstr("gaccd: the run is done\n"));
    later.join();
  }
}

// It says nothing for long, or it waits in the queue: it may continue.
TEST_F(LogsTest, FollowsStaleOrRequeuedRun) {
  Log("000-812", 0, 'I', 1, "first");
  const auto status = [&](std::string_view attempt, std::string_view state) {
    const std::string text =
        StrCat(R"({"ts":"2020-11-20T03:00:00.000000Z","job":"other","attempt_dir":"attempts/)",
               attempt, R"(","state":)", state, "}");
    ASSERT_TRUE(ReplaceFile(run_.Path("STATUS.json"), text, false).ok());
  };
  for (const char* before : {R"("running")", R"("failed","exit":75)"}) {
    status("000-812", before);
    std::thread later([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      Log("001-812", 0, 'I', 2, "second");
      status("001-812", R"("failed","exit":78,"reason":"no data")");
    });
    EXPECT_THAT(Messages({.follow = true}), HasSubstr("second")) << before;
    EXPECT_THAT(notes_, HasSubstr("gaccd: the run is failed; no data\n"));
    later.join();
    std::filesystem::remove_all(run_.Path("attempts/001-812"));
  }
}

TEST_F(LogsTest, UnstartedRunHasNoAttempts) {
  const auto print = [&] { return RunLogsCommand({.folder = run_.path()}); };
  EXPECT_THAT(print(), IsError(ErrorKind::kUsage, "is not a run folder"));
  run_.Append("0-lr=0.1/STATUS.json", "{}");
  EXPECT_THAT(print(), IsError(ErrorKind::kUsage,
                               StrCat("as '", run_.Path("0-lr=0.1"), "' in it; gaccd runs lists")));
  run_.Append("submit.jsonl", StrCat(R"({"v":1,"ts":")", At(1), R"(","jobs":"812"})", "\n"));
  EXPECT_THAT(print(), IsError(ErrorKind::kUsage, "has no attempts yet: job 812 has not begun"));
}

}  // namespace
}  // namespace gaccd
