// What the flags of a run become.
#include "daemon/train/run_options.h"

#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>

#include "collectives/comm/communicator.h"
#include "collectives/liveness/deadline/deadline.h"

namespace gaccd {
namespace {

TEST(StopOptionsTest, FollowFlagsAndJobStep) {
  const auto comm = MakeSingle();
  const auto before = Clocks::Steady::now();
  const auto clocks = Clocks::Compare(*comm, [] { return 999'940.0; });
  const auto after = Clocks::Steady::now();
  ASSERT_TRUE(clocks.ok()) << clocks.status().message();

  SlurmEnvironment slurm;
  const StopOptions plain = MakeStopOptions({}, slurm, *clocks, nullptr, false, 0);
  EXPECT_EQ(plain.run_dir, "");
  EXPECT_FALSE(plain.job_end.has_value());
  EXPECT_EQ(plain.term_budget.count(), static_cast<double>(Flags().term_budget));
  EXPECT_FALSE(plain.checkpoints);
  EXPECT_TRUE(plain.warn);

  slurm.end_time_s = 1'000'000;
  Flags flags;
  flags.run_dir = "/run";
  flags.term_budget = 7;
  const StopOptions options = MakeStopOptions(flags, slurm, *clocks, nullptr, true, 400e6);
  EXPECT_EQ(options.run_dir, "/run");
  ASSERT_TRUE(options.job_end.has_value());
  EXPECT_GE(*options.job_end, before + std::chrono::seconds(60));
  EXPECT_LE(*options.job_end, after + std::chrono::seconds(60));
  EXPECT_EQ(options.term_budget.count(), 7);
  EXPECT_TRUE(options.checkpoints);
  EXPECT_DOUBLE_EQ(options.save_guess.count(), 3);
}

// The other ranks wait in a collective for rank 0, which waits for the attempt before.
TEST(OwnerPatienceTest, EndsBeforeOtherRanksTimeOut) {
  for (const std::int64_t bound : {1, 20, 42, 60, 3600}) {
    Flags flags;
    flags.run_dir = "/run";
    flags.bound = bound;
    const auto late = Deadline::Millis(std::chrono::seconds(bound)) * Deadline::kWaitShare;
    EXPECT_LT(MakeOwnerPatience(flags).own_job, late) << bound;
    EXPECT_LT(MakeCheckpointOptions(flags, {}).lease_patience.own_job, late) << bound;
  }
}

Environment Variables(const std::map<std::string, std::string>& values) {
  return [values](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  };
}

TEST(TimingTest, IsOnIfChoicesAreKeptUnlessFlagDisablesIt) {
  const Environment home = Variables({{"HOME", "/home/a"}});
  const Environment nowhere = Variables({});
  struct Case {
    std::optional<bool> flag;
    Environment environment;
    bool times;
    std::string folder;
  };
  for (const Case& one :
       {Case{{}, home, true, "/home/a/.cache/gaccd"},
        Case{{}, Variables({{"HOME", "/a"}, {"XDG_CACHE_HOME", "/b"}}), true, "/b/gaccd"},
        Case{{}, Variables({{"HOME", "/a"}, {"GACCD_CACHE_DIR", "/c"}}), true, "/c"},
        Case{{}, Variables({{"HOME", "/a"}, {"XDG_CACHE_HOME", ""}}), true, "/a/.cache/gaccd"},
        Case{{}, Variables({{"HOME", ""}}), false, ""},
        Case{{}, Variables({{"HOME", "/a"}, {"GACCD_CACHE_DIR", ""}}), false, ""},
        Case{{}, nowhere, false, ""}, Case{true, nowhere, true, ""}, Case{false, home, false, ""},
        Case{true, home, true, "/home/a/.cache/gaccd"}}) {
    Flags flags;
    flags.time_algorithms = one.flag;
    EngineChoice choice{.device = Device::kCuda};
    SetTiming(flags, one.environment, &choice);
    EXPECT_EQ(choice.time_algorithms, one.times);
    EXPECT_EQ(choice.choices_folder, one.folder);
    for (EngineChoice none : {EngineChoice{.device = Device::kCpu},
                              EngineChoice{.device = Device::kCuda, .gpu_sharing = true}}) {
      SetTiming(flags, one.environment, &none);
      EXPECT_FALSE(none.time_algorithms);
      EXPECT_EQ(none.choices_folder, "");
    }
  }
}

}  // namespace
}  // namespace gaccd
