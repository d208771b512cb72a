#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/telemetry/event_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {
namespace {

using testing_json::Lines;

FileDescriptor Append(const std::string& path) {
  return ValueOrThrow(OpenFile(path, O_WRONLY | O_APPEND | O_CREAT));
}

constexpr std::chrono::seconds kLong{60};

std::unique_ptr<EventLog> Start(FileDescriptor file, const std::string& path,
                                EventLog::NoticeMaker notice = nullptr) {
  return ValueOrThrow(EventLog::Start(std::move(file), path, kFileMode, std::move(notice)));
}

std::function<std::string(const LineStamp&)> Line(const std::string& text) {
  return [text](const LineStamp& stamp) { return StrCat(stamp.seq, " ", stamp.level, " ", text); };
}

TEST(EventLogTest, NumbersTheLines) {
  const TempFolder dir;
  const std::string path = dir.path() + "/events.jsonl";
  const auto started = Start(Append(path), path);
  EventLog& log = *started;
  log.Write("info", Line("a"));
  log.Write("warning", Line("b"));
  EXPECT_TRUE(log.Sync(kLong));
  EXPECT_THAT(Lines(path), ElementsAre("1 info a", "2 warning b"));
  EXPECT_EQ(log.failures(), 0);
  EXPECT_TRUE(log.first_failure().ok());
}

TEST(EventLogTest, LinesOfThreadsAreIntactAndOrdered) {
  const TempFolder dir;
  const std::string path = dir.path() + "/events.jsonl";
  const auto started = Start(Append(path), path);
  EventLog& log = *started;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) {
        log.Write("info", [](const LineStamp& stamp) { return StrCat(stamp.seq, " ", stamp.ts); });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(log.Sync(kLong));
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

TEST(EventLogTest, CountsAndNamesFullDisk) {
  auto full = ValueOrThrow(OpenFile("/dev/full", O_WRONLY | O_APPEND));
  const auto started = Start(std::move(full), "/run/events.jsonl");
  EventLog& log = *started;
  log.Write("info", Line("a"));
  log.Write("info", Line("b"));
  ASSERT_TRUE(log.Sync(kLong));
  EXPECT_EQ(log.failures(), 2);
  EXPECT_THAT(log.first_failure(), IsError(ErrorKind::kIo, "'/run/events.jsonl': No space left"));
}

// A disk that fills up in the middle of a line and is emptied later: the half line stays alone.
TEST(EventLogTest, ContinuesAfterTruncatedLine) {
  const TempFolder dir;
  const std::string path = dir.path() + "/events.jsonl";
  const auto started = Start(Append(path), path);
  EventLog& log = *started;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  rlimit small = before;
  small.rlim_cur = 16;  // the second line of 9 bytes ends inside
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  log.Write("info", Line("a"));
  log.Write("info", Line("b"));
  log.Write("info", Line("c"));
  ASSERT_TRUE(log.Sync(kLong));
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ::signal(SIGXFSZ, old_handler);
  log.Write("info", Line("d"));
  log.Write("info", Line("e"));
  ASSERT_TRUE(log.Sync(kLong));
  EXPECT_EQ(log.failures(), 2);
  EXPECT_THAT(Lines(path), ElementsAre("1 info a", "2 info ", "4 info d", "5 info e"));
}

EventLog::NoticeMaker Notice() {
  return [](const LineStamp& last, const DroppedLines& dropped) {
    return StrCat(last.seq, " lost ", dropped.lines, " of ", dropped.total);
  };
}

// The descriptor leads to a device without room for a while. The line about the lost ones is
// for the last of them.
TEST(EventLogTest, LaterLineCountsLostLines) {
  const TempFolder dir;
  const std::string path = dir.path() + "/events.jsonl";
  FileDescriptor file = Append(path);
  const int fd = file.get();
  const auto started = Start(std::move(file), path, Notice());
  EventLog& log = *started;
  const FileDescriptor good(::dup(fd));
  const FileDescriptor full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  log.Write("info", Line("a"));
  for (int round = 0; round < 2; ++round) {
    ASSERT_TRUE(log.Sync(kLong));
    ASSERT_EQ(::dup2(full.get(), fd), fd);
    for (int i = 0; i < 3; ++i) log.Write("info", Line("lost"));
    ASSERT_TRUE(log.Sync(kLong));
    EXPECT_EQ(log.dropped(), 3 * (round + 1));
    ASSERT_EQ(::dup2(good.get(), fd), fd);
    log.Write("info", Line("b"));
  }
  ASSERT_TRUE(log.Sync(kLong));
  EXPECT_THAT(Lines(path),
              ElementsAre("1 info a", "4 lost 3 of 3", "5 info b", "8 lost 3 of 6", "9 info b"));
}

TEST(EventLogTest, RecreatesRemovedFile) {
  const TempFolder dir;
  const std::string path = dir.path() + "/events.jsonl";
  AppendFile file(Append(path), path);
  EXPECT_TRUE(file.Append("a"));
  file.ReopenIfRemoved();
  EXPECT_TRUE(file.Append("b")) << "nobody can know yet";
  ::unlink(path.c_str());
  EXPECT_TRUE(file.Append("c"));
  file.ReopenIfRemoved();
  EXPECT_EQ(file.dropped(), 2) << "b and c, at most";
  EXPECT_THAT(file.first_failure(), HasMessage(HasSubstr("was removed; it is created again")));
  EXPECT_TRUE(file.Append("d"));
  EXPECT_THAT(Lines(path), ElementsAre("d"));
}

TEST(EventLogTest, LosesLinesIfFolderIsRemoved) {
  const TempFolder dir;
  const std::string folder = dir.path() + "/attempt";
  const std::string path = folder + "/events.jsonl";
  ASSERT_TRUE(MakeFolders(folder).ok());
  AppendFile file(Append(path), path);
  std::filesystem::remove_all(folder);
  for (int i = 1; i <= 3; ++i) {
    file.Append("x");
    file.ReopenIfRemoved();
    EXPECT_EQ(file.dropped(), i);
  }
  ASSERT_TRUE(MakeFolders(folder).ok());
  file.ReopenIfRemoved();
  EXPECT_TRUE(file.Append("y"));
  EXPECT_THAT(Lines(path), ElementsAre("y"));
}

}  // namespace
}  // namespace gaccd
