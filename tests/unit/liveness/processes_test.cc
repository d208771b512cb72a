#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "collectives/liveness/deadline/deadline.h"
#include "collectives/liveness/deadline/peer_processes.h"

namespace gaccd {
namespace {

// A process that sleeps until it is killed.
pid_t StartSleeper() {
  const pid_t pid = fork();
  if (pid == 0) {
    for (;;) pause();
  }
  return pid;
}

std::vector<int> EndedSoon(const PeerProcesses& peers) {
  for (int i = 0; i < 12'000 && peers.Ended().empty(); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return peers.Ended();
}

TEST(PeerProcessesTest, KilledProcessEndsBeforeReaping) {
  const pid_t first = StartSleeper();
  const pid_t second = StartSleeper();
  const std::uint64_t space = ThisProcess().pid_namespace;
  PeerProcesses peers;
  ASSERT_TRUE(peers.Watch(4, {first, space}));
  ASSERT_TRUE(peers.Watch(7, {second, space}));
  EXPECT_TRUE(peers.Ended().empty());

  kill(second, SIGSTOP);
  EXPECT_TRUE(peers.Ended().empty()) << "a stopped process has not ended";
  kill(second, SIGKILL);
  EXPECT_EQ(EndedSoon(peers), std::vector<int>{7});

  kill(first, SIGKILL);
  EXPECT_EQ(waitpid(first, nullptr, 0), first);
  EXPECT_EQ(waitpid(second, nullptr, 0), second);
  EXPECT_EQ(peers.Ended(), (std::vector<int>{4, 7}));
}

TEST(PeerProcessesTest, RefusesOtherNamespacesAndUnknownProcesses) {
  PeerProcesses peers;
  const ProcessName self = ThisProcess();
  EXPECT_EQ(self.pid, getpid());
  EXPECT_FALSE(peers.Watch(0, {self.pid, self.pid_namespace + 1}));
  EXPECT_FALSE(peers.Watch(0, {self.pid, 0}));
  const pid_t gone = StartSleeper();
  kill(gone, SIGKILL);
  ASSERT_EQ(waitpid(gone, nullptr, 0), gone);
  EXPECT_FALSE(peers.Watch(0, {gone, self.pid_namespace}));
  EXPECT_TRUE(peers.Ended().empty());
}

TEST(ExitTimerTest, EndsTheProcessWithCodeAndMessage) {
  EXPECT_EXIT(
      {
        const ExitTimer timer(std::chrono::milliseconds(50), 69, "the others \x1b[2Jdid not come");
        for (;;) pause();
      },
      ::testing::ExitedWithCode(69), "^the others \\\\x1b\\[2Jdid not come\n$");
}

TEST(ExitTimerTest, EndsTheProcessWhenNobodyReadsTheMessage) {
  EXPECT_EXIT(
      {
        int ends[2];
        ASSERT_EQ(pipe(ends), 0);
        fcntl(ends[1], F_SETFL, O_NONBLOCK);
        while (write(ends[1], "x", 1) == 1) {
        }
        fcntl(ends[1], F_SETFL, 0);
        dup2(ends[1], STDERR_FILENO);
        alarm(60);
        const ExitTimer timer(std::chrono::milliseconds(50), 69, "the others did not come");
        for (;;) pause();
      },
      ::testing::ExitedWithCode(69), "");
}

TEST(ExitTimerTest, DoesNothingWhenDestroyedInTime) {
  const auto start = std::chrono::steady_clock::now();
  { const ExitTimer timer(std::chrono::minutes(10), 69, "too late"); }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::minutes(1));
}

}  // namespace
}  // namespace gaccd
