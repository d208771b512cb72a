// Signals belong to the process, so every test crashes a process of its own.
#include "daemon/telemetry/crash_handler.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "collectives/base/strings.h"
#include "collectives/base/thread.h"
#include "daemon/data/mapped_file.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {
namespace {

using namespace testing_json;  // NOLINT
namespace fs = std::filesystem;

const RunIdentity kCrashingRank{"run \"x\"\n", "77", 2, 17, "n3"};

// How a child ended that ran `body` with a handler, as waitpid(2) has it.
int EndOfChild(const std::string& path, const std::function<void(RankPosition&)>& body) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit no_core{0, 0};
    ::setrlimit(RLIMIT_CORE, &no_core);
    // As without a sanitizer, whose own handlers would end the process by exit().
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::signal(signal, SIG_DFL);
    RankPosition place;
    place.step = 12;
    place.phase = "compute";
    place.micro_step = 3;
    const auto handler = CrashHandler::Install(path, kCrashingRank, place, 0600);
    body(place);
    ::_exit(handler == nullptr ? 1 : 0);
  }
  int result = 0;
  ::waitpid(child, &result, 0);
  return result;
}

// The signal that ended it; 0: it ended by itself.
int SignalOfChild(const std::string& path, const std::function<void(RankPosition&)>& body) {
  const int result = EndOfChild(path, body);
  return WIFSIGNALED(result) ? WTERMSIG(result) : 0;
}

class CrashHandlerTest : public testing::TestWithParam<int> {
 protected:
  [[nodiscard]] std::string Path() const { return dir_.path() + "/r00017.json"; }
  TempFolder dir_;
};

TEST_P(CrashHandlerTest, WritesRecordAndDiesOfItsSignal) {
  const int signal = GetParam();
  EXPECT_EQ(SignalOfChild(Path(), [&](RankPosition&) { ::raise(signal); }), signal);
  const Object record = Parse(Content(Path()));
  EXPECT_EQ(Text(record, "ev"), "failure");
  EXPECT_EQ(Text(record, "run"), "run \"x\"\n");
  EXPECT_EQ(Text(record, "host"), "n3");
  EXPECT_EQ(Number(record, "rank"), 17);
  EXPECT_EQ(Number(record, "signal"), signal);
  EXPECT_EQ(Number(record, "step"), 12);
  EXPECT_EQ(Text(record, "phase"), "compute");
  EXPECT_EQ(Number(record, "micro_step"), 3);
  EXPECT_THAT(Text(record, "ts"),
              testing::MatchesRegex("20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}\\.[0-9]{6}Z"));
  EXPECT_EQ(record.count("exit"), 0u);
  const auto mode = fs::status(Path()).permissions();
  EXPECT_EQ(mode, fs::perms::owner_read | fs::perms::owner_write);
}

INSTANTIATE_TEST_SUITE_P(Signals, CrashHandlerTest,
                         testing::Values(SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT));

#ifndef GACCD_SANITIZED
TEST_F(CrashHandlerTest, HandlesRealFault) {
  const int signal = SignalOfChild(Path(), [](RankPosition&) {
    volatile int* nowhere = nullptr;
    *nowhere = 1;
  });
  EXPECT_EQ(signal, SIGSEGV);
  EXPECT_EQ(Number(Parse(Content(Path())), "signal"), SIGSEGV);
}

// A data file that somebody makes shorter while it is read.
TEST_F(CrashHandlerTest, NamesMissingMappedFile) {
  const std::string data = dir_.path() + "/data \"x\"";
  const std::string messages = dir_.path() + "/stderr";
  const int result = EndOfChild(Path(), [&](RankPosition&) {
    ::dup2(::open(messages.c_str(), O_WRONLY | O_CREAT, 0600), STDERR_FILENO);
    std::ofstream(data) << std::string(100'000, 'x');
    const auto other = MappedFile::Open("/proc/self/exe");
    const auto file = MappedFile::Open(data);
    if (!other.ok() || !file.ok() || ::truncate(data.c_str(), 10) != 0) ::_exit(2);
    volatile const std::byte* bytes = (*file)->bytes().data();
    auto thread = StartThread("the prefetch thread", [&] { (void)bytes[50'000]; });
    thread->join();
  });
  EXPECT_TRUE(WIFEXITED(result)) << result;
  EXPECT_EQ(WEXITSTATUS(result), static_cast<int>(ErrorKind::kData));
  const Object record = Parse(Content(Path()));
  EXPECT_EQ(Number(record, "exit"), static_cast<int>(ErrorKind::kData));
  EXPECT_EQ(record.count("signal"), 0u);
  EXPECT_THAT(Text(record, "msg"), testing::HasSubstr("/data ?x?', byte 50000;"));
  EXPECT_THAT(Content(messages),
              testing::AllOf(testing::StartsWith("gaccd: rank 17 on n3: error (data, exit 65): "),
                             testing::HasSubstr("/data ?x?', byte 50000;")));
}

TEST(FindMapped, KnowsAllShardsOfLargeDataSet) {
  constexpr std::int64_t kFiles = 500;
  const TempFolder dir;
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (std::int64_t i = 0; i < kFiles; ++i) {
    const std::string path = dir.Write(StrCat(i), "0123456789");
    files.push_back(ValueOrThrow(MappedFile::Open(path)));
  }
  for (const auto& file : files) {
    const MappedPlace place = FindMapped(file->bytes().data() + 5);
    ASSERT_NE(place.path, nullptr) << &file - files.data();
    EXPECT_EQ(place.path, dir.Path(StrCat(&file - files.data())));
    EXPECT_EQ(place.byte, 5);
  }
  const std::byte* const gone = files[40]->bytes().data();
  files[40].reset();
  EXPECT_EQ(FindMapped(gone).path, nullptr);
}

// Both at once: the second one waits until the record is written.
TEST_F(CrashHandlerTest, HandlesTwoFaultsAtOnce) {
  for (int i = 0; i < 5; ++i) {
    fs::remove(Path());
    EXPECT_EQ(SignalOfChild(Path(),
                            [](RankPosition&) {
                              std::barrier together(2);
                              const auto fault = [&] {
                                together.arrive_and_wait();
                                volatile int* nowhere = nullptr;
                                *nowhere = 1;
                              };
                              auto other = StartThread("another", fault);
                              fault();
                            }),
              SIGSEGV);
    EXPECT_EQ(Number(Parse(Content(Path())), "signal"), SIGSEGV);
  }
}

// 4 GB of stack, which no system gives.
int Deeper(volatile char* above, int levels) {
  volatile char here[4096];
  here[0] = *above;
  return levels == 0 ? 0 : here[0] + Deeper(here, levels - 1);
}

TEST_F(CrashHandlerTest, HandlesStackOverflow) {
  const int signal = SignalOfChild(Path(), [](RankPosition&) {
    volatile char first = 1;
    Deeper(&first, 1'000'000);
  });
  EXPECT_EQ(signal, SIGSEGV);
  EXPECT_EQ(Number(Parse(Content(Path())), "signal"), SIGSEGV);
}

TEST_F(CrashHandlerTest, HandlesStackOverflowOfAnotherThread) {
  const int signal = SignalOfChild(Path(), [](RankPosition&) {
    auto thread = StartThread("another", [] {
      volatile char first = 1;
      Deeper(&first, 1'000'000);
    });
    thread->join();
  });
  EXPECT_EQ(signal, SIGSEGV);
  EXPECT_EQ(Number(Parse(Content(Path())), "signal"), SIGSEGV);
}
#endif

TEST_F(CrashHandlerTest, HandlesFaultOfAnotherThread) {
  EXPECT_EQ(SignalOfChild(Path(), [](RankPosition&) { std::thread([] { ::abort(); }).join(); }),
            SIGABRT);
  EXPECT_EQ(Number(Parse(Content(Path())), "signal"), SIGABRT);
}

TEST_F(CrashHandlerTest, DoesNotFollowLinks) {
  const std::string victim = dir_.path() + "/victim";
  fs::create_symlink(victim, Path());
  EXPECT_EQ(SignalOfChild(Path(), [](RankPosition&) { ::abort(); }), SIGABRT);
  EXPECT_FALSE(fs::exists(victim));
}

TEST_F(CrashHandlerTest, AllowsOnePerProcessAndRestoresSignals) {
  EXPECT_EQ(SignalOfChild(Path(),
                          [&](RankPosition& place) {
                            if (CrashHandler::Install(Path(), kCrashingRank, place, 0600))
                              ::_exit(2);
                          }),
            0);
  const pid_t child = ::fork();
  if (child == 0) {
    RankPosition place;
    CrashHandler::Install(Path(), kCrashingRank, place, 0600).reset();
    struct sigaction now {};
    ::sigaction(SIGXFSZ, nullptr, &now);
    ::_exit(now.sa_handler == SIG_DFL ? 0 : 1);
  }
  int result = 0;
  ::waitpid(child, &result, 0);
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace gaccd
