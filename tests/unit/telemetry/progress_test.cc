#include "daemon/telemetry/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <future>
#include <limits>
#include <memory>
#include <thread>

#include "collectives/base/strings.h"
#include "daemon/telemetry/event_lines.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/telemetry/pty.h"

namespace gaccd {
namespace {

const ProgressState kState{2, 1350, 3000, 0.41274, 12304, 94, 0.1};

std::string Drawn(int columns) {
  return StrCat("\r", ProgressLine(kState, columns, false), "\x1b[K");
}

std::size_t Columns(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::size_t Count(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

TEST(ProgressLineTest, ShowsEverythingIfThereIsRoom) {
  EXPECT_EQ(ProgressLine(kState, 109, false),
            "epoch 2  ##############...................   45%  1350/3000  loss 0.4127  lr 0.1  "
            "12.3k samples/s  1:34 left");
  EXPECT_THAT(ProgressLine(kState, 109, true), HasSubstr("━━━━╸┄┄"));
}

TEST(ProgressLineTest, FitsEveryWidth) {
  ProgressState big{1'000'000, 123'456'789, 987'654'321, -1.23456e-30, 1e9, 1e9};
  for (const ProgressState& state : {kState, big}) {
    for (int columns = 0; columns <= 300; ++columns) {
      for (const bool utf8 : {false, true}) {
        const std::string line = ProgressLine(state, columns, utf8);
        EXPECT_LE(Columns(line), static_cast<std::size_t>(std::max(1, columns - 1)))
            << columns << ": " << line;
        if (columns > 30) {
          EXPECT_THAT(line, HasSubstr("loss"));
        }
      }
    }
  }
}

TEST(ProgressLineTest, AsciiHasNoOtherBytes) {
  for (const char c : ProgressLine(kState, 200, false)) EXPECT_TRUE(c >= 32 && c < 127);
}

TEST(ProgressLineTest, EndsFull) {
  const std::string line = ProgressLine({1, 10, 10, 1, 1, 0}, 120, false);
  EXPECT_THAT(line, HasSubstr("########################################  100%"));
  EXPECT_THAT(ProgressLine({1, 0, 0, 1, 1, 0}, 120, false), HasSubstr("  0%"));
  EXPECT_THAT(
      ProgressLine({1, 10, 10, -std::numeric_limits<double>::quiet_NaN(), 1, 0}, 120, false),
      HasSubstr("  loss nan"));
}

TEST(StepLineTest, FitsATerminal) {
  const StepRecord usual{.epoch = 1, .step = 100, .loss = 1.402374, .lr = 0.1};
  EXPECT_EQ(StepLine(usual, 51'234, 7),
            "epoch: 1 step: 100, loss is 1.402374, lr 0.1, 51.2k samples/s, 0:07");
  const StepRecord large{.epoch = 9, .step = 999'999, .loss = 0.00012345678, .lr = 1.2345e-5};
  for (const double rate : {0.0, 987.4, 9999.6, 999'949.0, 999'951.0, 1.23e9, 9e11}) {
    EXPECT_LE(StepLine(large, rate, 359'999).size(), 80U) << StepLine(large, rate, 359'999);
  }
  EXPECT_THAT(StepLine(large, 999'951, 0), HasSubstr(", 1.00M samples/s"));
  EXPECT_THAT(StepLine(large, 9999.6, 0), HasSubstr(", 10.0k samples/s"));
  StepRecord skipped = usual;
  skipped.skipped = true;
  skipped.divisor = 10;
  EXPECT_THAT(StepLine(skipped, 1, 1), testing::EndsWith("skipped: the gradient is not finite"));
  EXPECT_LE(StepLine(skipped, 1, 1).size(), 80U);
  skipped.divisor = 0;  // its mean loss is undefined, and its gradient is 0
  skipped.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(StepLine(skipped, 1, 1), "epoch: 1 step: 100, update skipped: no label of it counts");
}

TEST(ProgressLineTest, Durations) {
  EXPECT_EQ(DurationText(0), "0:00");
  EXPECT_EQ(DurationText(7.4), "0:07");
  EXPECT_EQ(DurationText(94), "1:34");
  EXPECT_EQ(DurationText(7384), "2:03:04");
  EXPECT_EQ(DurationText(10 * 86400.0), "10 days");
  EXPECT_EQ(DurationText(std::numeric_limits<double>::infinity()), "?");
  EXPECT_EQ(DurationText(-1), "?");
}

class ProgressTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("TERM", "xterm", 1); }
  Pty pty_{100};
};

TEST_F(ProgressTest, DrawsOneLineAndErasesIt) {
  auto terminal = Terminal::Detect(pty_.slave());
  ASSERT_TRUE(terminal);
  {
    Progress bar(*std::move(terminal), false);
    bar.Update(kState);
    EXPECT_EQ(pty_.Read(), Drawn(100));
    bar.PrintAbove("a warning");
    EXPECT_EQ(pty_.Read(), StrCat("\r\x1b[Ka warning\r\n", Drawn(100)));
  }
  EXPECT_EQ(pty_.Read(), "\r\x1b[K");
}

TEST_F(ProgressTest, DrawsAtMostTenTimesASecond) {
  Progress bar(Terminal::Assume(pty_.slave()), true);
  const auto start = std::chrono::steady_clock::now();
  ProgressState state = kState;
  std::chrono::duration<double> took{};
  for (state.step = 1; took.count() < 0.35; ++state.step) {
    state.steps_total = state.step + 1000;
    bar.Update(state);
    took = std::chrono::steady_clock::now() - start;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  const std::size_t drawn = Count(pty_.Read(), "\x1b[K");
  EXPECT_GE(drawn, 2u);
  EXPECT_LE(drawn, 1 + static_cast<std::size_t>(took.count() * 10));
  state.step = state.steps_total;
  bar.Update(state);
  EXPECT_THAT(pty_.Read(), HasSubstr("100%")) << "the last step is always drawn";
}

TEST_F(ProgressTest, FollowsWindowSize) {
  Progress bar(Terminal::Assume(pty_.slave()), false);
  winsize size{};
  size.ws_col = 40;
  ASSERT_EQ(::ioctl(pty_.slave(), TIOCSWINSZ, &size), 0);
  bar.Update(kState);
  EXPECT_EQ(pty_.Read(), Drawn(40));
}

// After Ctrl-S.
TEST_F(ProgressTest, WarningDoesNotWaitForBlockedTerminal) {
  const Terminal terminal = Terminal::Assume(pty_.slave());
  Progress bar(Terminal::Assume(pty_.slave()), false);
  pty_.Type("\x13");
  while (terminal.Ready()) std::this_thread::yield();
  auto warnings = std::async(std::launch::async, [&bar] {
    bar.PrintAbove("a warning");
    bar.Update(kState);
    bar.PrintAbove("another");
  });
  EXPECT_EQ(warnings.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  pty_.Type("\x11");
  warnings.wait();
  while (!terminal.Ready()) std::this_thread::yield();
  bar.PrintAbove("a third");
  EXPECT_EQ(pty_.Read(), "a warning\r\nanother\r\na third\r\n");
}

TEST_F(ProgressTest, CountsOutputLostByTerminal) {
  TerminalOutput output(pty_.slave());
  const std::string line(999, 'x');
  auto lines = std::async(std::launch::async, [&] {
    for (int i = 0; i < 1000; ++i) output.Write(line + "\n");
  });
  EXPECT_EQ(lines.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  std::string shown = pty_.Read();
  lines.wait();
  for (bool flushed = false; !flushed; shown += pty_.Read()) flushed = output.Flush();
  const std::size_t whole = Count(shown, line + "\r\n");
  EXPECT_LT(whole, 1000U);
  EXPECT_THAT(shown, HasSubstr(StrCat("gaccd: warning: ", 1000 - whole, " lines are not shown")));
}

// As a file whose file system does not respond.
TEST_F(ProgressTest, OutputDoesNotWaitForFullPipe) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const FileDescriptor in(pipe[0]);
  const FileDescriptor out(pipe[1]);
  constexpr int kLines = 200;
  const std::string line(999, 'x');
  auto lines = std::async(std::launch::async, [&] {
    TerminalOutput output(out.get());
    for (int i = 0; i < kLines; ++i) output.Write(line + "\n");
  });
  EXPECT_EQ(lines.wait_for(std::chrono::seconds(60)), std::future_status::ready);
  std::string text;
  std::array<char, 4096> block;
  while (text.size() < kLines * (line.size() + 1)) {
    const ssize_t got = ::read(in.get(), block.data(), block.size());
    ASSERT_GT(got, 0);
    text.append(block.data(), static_cast<std::size_t>(got));
  }
  EXPECT_EQ(Count(text, line + "\n"), static_cast<std::size_t>(kLines));
}

// A reader that paused, and is slow: at the end of a run it still gets all lines.
TEST_F(ProgressTest, EndOfOutputWaitsForSlowReader) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const FileDescriptor in(pipe[0]);
  FileDescriptor out(pipe[1]);
  constexpr std::size_t kInPipe = 65'536;
  constexpr std::size_t kBytes = 400'000;
  std::atomic<std::size_t> read = 0;
  std::thread reader([&] {
    std::this_thread::sleep_for(TerminalOutput::kPatience + std::chrono::milliseconds(200));
    std::array<char, 4096> block;
    while (read < kBytes) {
      const ssize_t got = ::read(in.get(), block.data(), block.size());
      if (got <= 0) break;
      read += static_cast<std::size_t>(got);
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  });
  const std::string line(999, 'x');
  auto output = std::make_unique<TerminalOutput>(out.get());
  for (std::size_t bytes = 0; bytes < kBytes; bytes += 1000) output->Write(line + "\n");
  output.reset();
  EXPECT_GE(read + kInPipe, kBytes);
  reader.join();
}

TEST_F(ProgressTest, PipesFilesAndDumbTerminalsHaveNoBar) {
  int pipe[2];
  ASSERT_EQ(::pipe(pipe), 0);
  const FileDescriptor in(pipe[0]);
  const FileDescriptor out(pipe[1]);
  EXPECT_FALSE(Terminal::Detect(out.get()));
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(Terminal::Detect(pty_.slave()));
  ::unsetenv("TERM");
  EXPECT_FALSE(Terminal::Detect(pty_.slave()));
}

// As under mpirun: this process has a terminal of width 0, its parent's output is `outer`.
int ColumnsUnder(int outer) {
  const Pty inner(0);
  const pid_t launcher = ::fork();
  if (launcher == 0) {
    ::dup2(outer, STDOUT_FILENO);
    const pid_t rank = ::fork();
    if (rank == 0) {
      const auto terminal = Terminal::Detect(inner.slave());
      ::_exit(terminal ? terminal->Columns() : 0);
    }
    int result = 0;
    ::waitpid(rank, &result, 0);
    ::_exit(WEXITSTATUS(result));
  }
  int result = 0;
  ::waitpid(launcher, &result, 0);
  return WEXITSTATUS(result);
}

TEST_F(ProgressTest, UsesOutputOfMpirun) {
  const Pty outer(93);
  EXPECT_EQ(ColumnsUnder(outer.slave()), 93);
  const FileDescriptor file(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  EXPECT_EQ(ColumnsUnder(file.get()), 0);
}

TEST(TerminalTest, Utf8ByLocale) {
  EXPECT_TRUE(IsUtf8Locale(nullptr, nullptr, "en_US.UTF-8"));
  EXPECT_TRUE(IsUtf8Locale("", "C.utf8", "C"));
  EXPECT_FALSE(IsUtf8Locale("C", "en_US.UTF-8", "en_US.UTF-8"));
  EXPECT_FALSE(IsUtf8Locale(nullptr, nullptr, nullptr));
  EXPECT_FALSE(IsUtf8Locale(nullptr, nullptr, "de_DE.ISO-8859-1"));
}

}  // namespace
}  // namespace gaccd
