// What the flags of a run become.
#include "daemon/train/run_stages.h"

#include <gtest/gtest.h>

#include <utility>

#include "daemon/train/run_checkpoints.h"
#include "tests/unit/train/small_regression.h"

namespace gaccd {
namespace {

TEST(StopOptionsTest, HaveWhatTheFlagsAndTheJobStepSay) {
  const auto comm = MakeSingle();
  const Job job = tests::SmallRegression();
  const auto plan =
      Plan::Make({.nodes = 1, .gpus_per_node = 1, .micro_batch = 4, .target_batch = 20});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  auto trainer = Trainer::Open(*comm, job, *plan);
  ASSERT_TRUE(trainer.ok()) << trainer.status().message();
  const auto before = Clocks::Steady::now();
  const auto clocks = Clocks::Compare(*comm, [] { return 999'940.0; });
  const auto after = Clocks::Steady::now();
  ASSERT_TRUE(clocks.ok()) << clocks.status().message();

  Session session{.slurm = {}, .comm = *comm, .device = {}};
  session.setup.emplace(gaccd::Setup{job, *plan, *std::move(trainer)});
  const StopOptions plain = StopOptionsOf({}, session, *clocks);
  EXPECT_EQ(plain.run_dir, "");
  EXPECT_FALSE(plain.job_end.has_value());
  EXPECT_EQ(plain.term_budget.count(), static_cast<double>(Flags().term_budget));
  EXPECT_FALSE(plain.checkpoints);
  EXPECT_TRUE(plain.warn);

  session.slurm.end_time_s = 1'000'000;
  session.lease.emplace();
  Flags flags;
  flags.run_dir = "/run";
  flags.term_budget = 7;
  const StopOptions options = StopOptionsOf(flags, session, *clocks);
  EXPECT_EQ(options.run_dir, "/run");
  ASSERT_TRUE(options.job_end.has_value());
  EXPECT_GE(*options.job_end, before + std::chrono::seconds(60));
  EXPECT_LE(*options.job_end, after + std::chrono::seconds(60));
  EXPECT_EQ(options.term_budget.count(), 7);
  EXPECT_TRUE(options.checkpoints);
  EXPECT_DOUBLE_EQ(options.save_guess.count(), 1 + CheckpointBytes(session) / 200e6);
  EXPECT_GT(CheckpointBytes(session), 0);
}

}  // namespace
}  // namespace gaccd
