// The text log belongs to the process, so every test runs in a process of its own.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "daemon/telemetry/log.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {
namespace {

using testing_json::Content;
using testing_json::Lines;
namespace fs = std::filesystem;

constexpr std::chrono::seconds kNoDeadline{60};

// Runs `body` in a child and returns what it wrote to stderr.
std::string InChild(const std::function<void()>& body) {
  int pipe[2];
  if (::pipe(pipe) != 0) return "no pipe";
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], STDERR_FILENO);
    body();
    ::_exit(FlushTextLog(kNoDeadline) ? 0 : 1);
  }
  ::close(pipe[1]);
  std::string text;
  char buffer[512];
  for (ssize_t got = 0; (got = ::read(pipe[0], buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<std::size_t>(got));
  }
  ::close(pipe[0]);
  int result = 0;
  ::waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
  return text;
}

std::vector<std::string> Names(const std::string& dir) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(dir)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(TextLogTest, PrintsOnlyWarningsBeforeStart) {
  const std::string seen = InChild([] {
    LogInfo("quiet");
    LogWarning("careful");
    LogWarning("more careful");
  });
  EXPECT_EQ(seen, "gaccd: warning: careful\ngaccd: warning: more careful\n");
}

// "20261120 03", UTC.
std::string UtcHour() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof(text), "%Y%m%d %H", &utc);
  return text;
}

TEST(TextLogTest, OneFilePerRankWithRankStepAndUtc) {
  const TempFolder dir;
  const std::string hour_before = UtcHour();
  const std::string seen = InChild([&] {
    ::setenv("TZ", "XXX-9", 1);  // nine hours ahead
    ::tzset();
    StartTextLog(dir.path(), 17);
    SetLogSender("rank 17 on node3");
    LogInfo("first");
    SetLogStep(400);
    LogWarning("second");
    LogWarning("third");
  });
  EXPECT_EQ(seen,
            "gaccd: rank 17 on node3: warning: second\ngaccd: rank 17 on node3: warning: third\n");
  ASSERT_THAT(Names(dir.path()),
              ElementsAre(MatchesRegex("r00017\\.gaccd\\.INFO\\.[0-9]{8}-[0-9]{6}\\.[0-9]+")));
  const std::string path = dir.path() + "/" + Names(dir.path())[0];
  std::vector<std::string> ours;
  for (const std::string& line : Lines(path)) {
    if (line.find(" r17 ") != std::string::npos) ours.push_back(line);
  }
  ASSERT_FALSE(ours.empty());
  EXPECT_THAT(ours[0].substr(1, 11), AnyOf(hour_before, UtcHour()));
  const std::string time = "[0-9]{8} [0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{6}";
  EXPECT_THAT(ours,
              ElementsAre(MatchesRegex("I" + time + " r17 s0 text_log_test.cc:[0-9]+\\] first"),
                          MatchesRegex("W" + time + " r17 s400 text_log_test.cc:[0-9]+\\] second"),
                          MatchesRegex("W" + time + " r17 s400 text_log_test.cc:[0-9]+\\] third")));
  EXPECT_EQ(static_cast<int>(fs::status(path).permissions()) & 077, 0) << "for its user only";
}

TEST(TextLogTest, OnlyRankZeroCreatesLink) {
  const TempFolder dir;
  InChild([&] {
    StartTextLog(dir.path(), 0);
    LogInfo("x");
  });
  const std::vector<std::string> names = Names(dir.path());
  ASSERT_EQ(names.size(), 2u);
  EXPECT_EQ(names[0], "gaccd.INFO");
  EXPECT_TRUE(fs::is_symlink(dir.path() + "/gaccd.INFO"));
}

// InChild() expects the exit code 0.
TEST(TextLogTest, FlushWritesEveryLine) {
  const TempFolder dir;
  InChild([&] {
    StartTextLog(dir.path(), 1);
    LogInfo("first");
    LogInfo("second");
    FlushTextLog(kNoDeadline);
    const std::string path = dir.path() + "/" + Names(dir.path())[0];
    if (Content(path).find("] second\n") == std::string::npos) ::_exit(1);
  });
}

// Names and paths come from outside.
TEST(TextLogTest, EscapesLineBreaks) {
  const TempFolder dir;
  const std::string seen = InChild([&] {
    StartTextLog(dir.path(), 1);
    LogWarning("job 'a\nE20261120 00:00:00.000000 r0 s0 x.cc:1] forged\x1b[2J\r'");
  });
  const std::string shown =
      "job 'a\n  E20261120 00:00:00.000000 r0 s0 x.cc:1] forged\\x1b[2J\\x0d'\n";
  EXPECT_EQ(seen, "gaccd: warning: " + shown);
  EXPECT_THAT(Content(dir.path() + "/" + Names(dir.path())[0]), testing::EndsWith("] " + shown));
}

TEST(TextLogTest, KeepsLogOnStderrIfFileCannotBeCreated) {
  const std::string seen = InChild([] {
    StartTextLog("/proc/no", 3);
    LogInfo("quiet");
    LogWarning("loud");
  });
  EXPECT_THAT(seen, testing::StartsWith("gaccd: warning: cannot open '/proc/no/r00003."));
  EXPECT_THAT(seen, testing::EndsWith("gaccd: warning: loud\n"));
}

// A file size limit acts as a full disk: a write past it fails.
TEST(TextLogTest, FullDiskDropsLinesAndLaterLineCountsThem) {
  const TempFolder dir;
  InChild([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    StartTextLog(dir.path(), 2);
    LogInfo("first");
    FlushTextLog(kNoDeadline);
    const std::string path = dir.path() + "/" + Names(dir.path())[0];
    struct rlimit limit {};
    ::getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit full{fs::file_size(path), limit.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
    for (int i = 0; i < 5; ++i) LogInfo("lost");
    FlushTextLog(kNoDeadline);
    if (DroppedLogLines() != 5) ::_exit(1);
    ::setrlimit(RLIMIT_FSIZE, &limit);
    LogInfo("last");
    if (DroppedLogLines() != 5) ::_exit(2);
  });
  const std::vector<std::string> lines = Lines(dir.path() + "/" + Names(dir.path())[0]);
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_THAT(lines[1], MatchesRegex("# .*Z 5 lines are lost: cannot write '.*': File too large"));
  EXPECT_THAT(lines[2], HasSubstr("] last"));
}

TEST(TextLogTest, HookReplacesStderr) {
  const std::string seen = InChild([] {
    std::string got;
    SetLogHook([&](const LogLine& line) {
      got += std::string(line.level) + "|" + std::string(line.file) + "|" +
             std::string(line.message) + ";";
    });
    LogInfo("a");
    LogWarning("b");
    SetLogHook({});
    LogWarning(got);
  });
  EXPECT_EQ(seen, "gaccd: warning: warning|text_log_test.cc|b;\n");
}

}  // namespace
}  // namespace gaccd
