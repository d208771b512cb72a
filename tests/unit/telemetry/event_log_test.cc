#include "daemon/telemetry/event_log.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "collectives/base/strings.h"
#include "tests/unit/telemetry/json.h"
#include "tests/unit/telemetry/temp_dir.h"

namespace gaccd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing_json::Lines;

FileDescriptor Append(const std::string& path) {
  auto file = OpenFile(path, O_WRONLY | O_APPEND | O_CREAT);
  EXPECT_TRUE(file.ok());
  return std::move(file).value();
}

std::function<std::string(const LineStamp&)> Line(const std::string& text) {
  return [text](const LineStamp& stamp) { return StrCat(stamp.seq, " ", stamp.level, " ", text); };
}

TEST(EventLogTest, NumbersTheLines) {
  const TempDir dir;
  const std::string path = dir.path() + "/events.jsonl";
  EventLog log(Append(path), path);
  log.Write("info", Line("a"));
  log.Write("warning", Line("b"));
  log.Sync();
  EXPECT_THAT(Lines(path), ElementsAre("1 info a", "2 warning b"));
  EXPECT_EQ(log.failures(), 0);
  EXPECT_TRUE(log.first_failure().ok());
}

TEST(EventLogTest, LinesOfThreadsStayWholeAndInOrder) {
  const TempDir dir;
  const std::string path = dir.path() + "/events.jsonl";
  EventLog log(Append(path), path);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        log.Write("info", [](const LineStamp& stamp) { return StrCat(stamp.seq, " ", stamp.ts); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = Lines(path);
  ASSERT_EQ(lines.size(), 800u);
  std::string before;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string number = StrCat(i + 1, " ");
    ASSERT_EQ(lines[i].substr(0, number.size()), number);
    const std::string ts = lines[i].substr(number.size());
    ASSERT_LE(before, ts);  // the clock never goes back within a file
    before = ts;
  }
}

TEST(EventLogTest, FullDiskIsCountedAndNamed) {
  auto full = OpenFile("/dev/full", O_WRONLY | O_APPEND);
  ASSERT_TRUE(full.ok());
  EventLog log(std::move(full).value(), "/run/events.jsonl");
  log.Write("info", Line("a"));
  log.Write("info", Line("b"));
  EXPECT_EQ(log.failures(), 2);
  EXPECT_EQ(log.first_failure().kind(), ErrorKind::kIo);
  EXPECT_THAT(log.first_failure().message(), HasSubstr("'/run/events.jsonl': No space left"));
}

// A disk that fills up in the middle of a line and is emptied later: the half line stays alone.
TEST(EventLogTest, GoesOnAfterAHalfLine) {
  const TempDir dir;
  const std::string path = dir.path() + "/events.jsonl";
  EventLog log(Append(path), path);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 16;  // the second line of 9 bytes ends inside
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  log.Write("info", Line("a"));
  log.Write("info", Line("b"));
  log.Write("info", Line("c"));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, old_handler);
  log.Write("info", Line("d"));
  log.Write("info", Line("e"));
  EXPECT_EQ(log.failures(), 2);
  EXPECT_THAT(Lines(path), ElementsAre("1 info a", "2 info ", "4 info d", "5 info e"));
}

}  // namespace
}  // namespace gaccd
