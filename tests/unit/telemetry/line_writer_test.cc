// A FIFO that is full and that nobody reads stands for a file system that does not answer.
#include "daemon/telemetry/line_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <thread>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/telemetry/event_text.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kLongWait{60};

class HangingFile {
 public:
  HangingFile() {
    EXPECT_EQ(::mkfifo(path().c_str(), 0600), 0);
    end_ = FileDescriptor(::open(path().c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK));
    std::array<char, 4096> block{};
    block.fill('\n');
    while (::write(end_.get(), block.data(), block.size()) > 0) {
    }
  }
  [[nodiscard]] std::string path() const { return dir_.path() + "/fifo"; }
  // Blocks when it is written to.
  [[nodiscard]] AppendFile Open() const {
    return {FileDescriptor(::open(path().c_str(), O_RDWR | O_CLOEXEC)), path()};
  }
  // From now on it answers: what arrives until `last` does, without empty lines.
  [[nodiscard]] std::vector<std::string> ReadUntil(const std::string& last) const {
    std::string text;
    for (const auto start = Clock::now(); Clock::now() - start < kLongWait;) {
      std::array<char, 4096> block{};
      const ssize_t got = ::read(end_.get(), block.data(), block.size());
      if (got > 0) text.append(block.data(), static_cast<std::size_t>(got));
      if (text.ends_with(last + "\n")) break;
    }
    EXPECT_TRUE(text.ends_with(last + "\n")) << "waited for in vain: " << last;
    std::vector<std::string> lines;
    std::string line;
    for (const char c : text) {
      if (c != '\n') {
        line += c;
      } else if (!line.empty()) {
        lines.push_back(std::exchange(line, {}));
      }
    }
    return lines;
  }

 private:
  TempFolder dir_;
  FileDescriptor end_;
};

std::unique_ptr<LineWriter> Start(AppendFile file, std::size_t most_bytes) {
  auto writer = ValueOrThrow(LineWriter::Start(
      std::move(file),
      [](const LineStamp& last, const DroppedLines& dropped) {
        return StrCat(last.seq, " lost ", dropped.lines, " of ", dropped.total, ": ",
                      dropped.reason);
      },
      most_bytes));
  return writer;
}

void WaitForStall(const LineWriter& writer) {
  for (const auto start = Clock::now(); Clock::now() - start < kLongWait;) {
    if (writer.stalled_for() > 10ms) return;
    ::usleep(1000);
  }
  FAIL() << "the file took the line";
}

TEST(LineWriterTest, DoesNotWaitForHangingFileAndCountsLostLines) {
  const HangingFile file;
  const std::string text(400, 'x');
  const auto writer = Start(file.Open(), 4096);
  EXPECT_EQ(writer->stalled_for(), std::nullopt);
  writer->Add("0 first", {.seq = 0});
  WaitForStall(*writer);
  std::int64_t fit = 0;
  for (std::int64_t seq = 1; seq <= 100; ++seq) {
    writer->Add(StrCat(seq, " ", text), {.seq = seq});
    if (writer->dropped() == 0) fit = seq;
  }
  EXPECT_GE(fit, 4) << "they wait";
  EXPECT_LE(fit, 10) << "in the memory they may have";
  EXPECT_EQ(writer->dropped(), 100 - fit) << "counted at once";
  EXPECT_FALSE(writer->Flush(10ms));

  const std::vector<std::string> lines = file.ReadUntil("too many lines are waiting");
  ASSERT_EQ(lines.size(), static_cast<std::size_t>(fit) + 2);
  EXPECT_EQ(lines.front(), "0 first");
  EXPECT_EQ(lines[static_cast<std::size_t>(fit)], StrCat(fit, " ", text));
  EXPECT_THAT(lines.back(), HasSubstr(StrCat("100 lost ", 100 - fit, " of ", 100 - fit, ": '",
                                             file.path(), "' did not respond")))
      << "it is in the place of the lost ones";
  writer->Add("101 next", {.seq = 101});
  EXPECT_THAT(file.ReadUntil("101 next"), ElementsAre("101 next"));
  EXPECT_TRUE(writer->Flush(kLongWait));
  EXPECT_EQ(writer->stalled_for(), std::nullopt);
  EXPECT_THAT(writer->first_failure(), HasKind(ErrorKind::kIo));
}

TEST(LineWriterTest, AbandonsHangingThreadWithItsData) {
  const HangingFile file;
  auto writer = Start(file.Open(), 4096);
  writer->Add("first");
  writer->Add("last");
  const auto start = Clock::now();
  EXPECT_FALSE(writer->Flush(1ms));
  writer.reset();
  EXPECT_LT(Clock::now() - start, kLongWait);
  EXPECT_THAT(file.ReadUntil("last"), ElementsAre("first", "last"));
}

TEST(LineWriterTest, LinesAreWrittenWithoutFlush) {
  const TempFolder dir;
  const std::string path = dir.path() + "/lines";
  auto file = ValueOrThrow(OpenFile(path, O_WRONLY | O_APPEND | O_CREAT));
  const auto writer = Start(AppendFile(std::move(file), path), LineWriter::kMaxBytes);
  std::string expected;
  for (const auto pause : {0ms, 1ms, 1ms, 4 * LineWriter::kGatherTime, 1ms}) {
    std::this_thread::sleep_for(pause);  // the thread of the writer gathers lines, or sleeps
    writer->Add("line");
    expected += "line\n";
    std::string text;
    for (const auto start = Clock::now(); Clock::now() - start < kLongWait && text != expected;) {
      text = *ReadSmallFile(path, ErrorKind::kData);
    }
    ASSERT_EQ(text, expected);
  }
}

TEST(LineWriterTest, WritesPendingLinesAtEnd) {
  const TempFolder dir;
  const std::string path = dir.path() + "/lines";
  std::string expected;
  {
    auto file = ValueOrThrow(OpenFile(path, O_WRONLY | O_APPEND | O_CREAT));
    const auto writer = Start(AppendFile(std::move(file), path), LineWriter::kMaxBytes);
    for (int i = 0; i < 1000; ++i) {
      writer->Add(StrCat(i));
      expected += StrCat(i, "\n");
    }
  }
  const auto text = ValueOrThrow(ReadSmallFile(path, ErrorKind::kData));
  EXPECT_EQ(text, expected);
}

// Stamps are given when a line is made, and the clock of lost ones does not go back either.
TEST(LineWriterTest, EventsOfHangingFolderKeepNumbers) {
  const HangingFile file;
  auto log =
      EventLog::Start(FileDescriptor(::open(file.path().c_str(), O_RDWR | O_CLOEXEC)), file.path());
  ASSERT_TRUE(log.ok());
  for (int i = 0; i < 3; ++i) {
    (*log)->Write("info", [](const LineStamp& stamp) { return StrCat(stamp.seq); });
  }
  EXPECT_FALSE((*log)->Sync(1ms));
  EXPECT_THAT(file.ReadUntil("3"), ElementsAre("1", "2", "3"));
}

}  // namespace
}  // namespace gaccd
