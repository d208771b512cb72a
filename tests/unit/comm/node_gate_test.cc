#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "collectives/comm/wait.h"

namespace gaccd {
namespace {

using Clock = std::chrono::steady_clock;

TEST(NodeGateTest, SleepTimesOut) {
  NodeGate gate{};
  const auto start = Clock::now();
  gate.Sleep(1, start + std::chrono::milliseconds(20));
  EXPECT_GE(Clock::now() - start, std::chrono::milliseconds(20));
  EXPECT_FALSE(gate.Reached(1));
  EXPECT_EQ(gate.sleepers.load(), 0U);
}

TEST(NodeGateTest, DoesNotSleepIfTargetIsReached) {
  NodeGate gate{};
  gate.Add(3, 3);
  EXPECT_TRUE(gate.Reached(3));
  const auto start = Clock::now();
  gate.Sleep(3, start + std::chrono::minutes(1));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(30));
}

// As barriers between processes: a lost wake-up costs the long sleep below.
TEST(NodeGateTest, ProcessesMeetManyTimes) {
  constexpr int kProcesses = 4;
  constexpr std::uint64_t kRounds = 3000;
  static constexpr std::chrono::seconds kLost{
      100};  // far more than all rounds take on a busy machine
  void* memory =
      mmap(nullptr, sizeof(NodeGate), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* gate = new (memory) NodeGate{};
  const auto meet = [gate] {
    for (std::uint64_t round = 1; round <= kRounds; ++round) {
      const std::uint64_t target = round * kProcesses;
      gate->Add(1, target);
      while (!gate->Reached(target)) gate->Sleep(target, Clock::now() + kLost);
    }
  };
  const auto start = Clock::now();
  std::vector<pid_t> children;
  for (int i = 1; i < kProcesses; ++i) {
    const pid_t pid = fork();
    if (pid == 0) {
      meet();
      _exit(0);
    }
    children.push_back(pid);
  }
  meet();
  for (const pid_t pid : children) {
    int status = -1;
    EXPECT_EQ(waitpid(pid, &status, 0), pid);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(gate->count.load(), kRounds * kProcesses);
  EXPECT_EQ(gate->sleepers.load(), 0U);
  EXPECT_LT(Clock::now() - start, kLost);
  munmap(memory, sizeof(NodeGate));
}

}  // namespace
}  // namespace gaccd
