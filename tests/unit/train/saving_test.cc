// When a training saves, and how saves that take long or fail are handled.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "daemon/checkpoint/load.h"
#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/shard.h"
#include "tests/support/resume_fixture.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using tests::Place;
using tests::SmallJob;

class SavingTest : public tests::ResumeTest {
 protected:
  static constexpr std::chrono::milliseconds kTick{10};
};

// A save is committed at the boundary after the one at which its shards were on the disk, not when
// the next but one needs its place. A helper that has
// not finished its task by then gets more time after the next update.
TEST_F(SavingTest, CommitsEveryUpdateOneUpdateLater) {
  Job job = SmallJob();
  job.max_updates = 6;
  const auto wait = [](std::chrono::milliseconds most, const std::function<bool()>& done) {
    for (auto waited = 0 * kTick; waited < most && !done(); waited += kTick) {
      std::this_thread::sleep_for(kTick);
    }
    return done();
  };
  int committed = 0;
  auto helpers_need = 10 * kTick;
  look_ = [&](int rank, std::int64_t update) {
    if (rank != 0 || update < 2) return;
    const std::string manifest = StrCat(CheckpointPath(update - 2), "/", kManifestName);
    if (update > 2 && wait(500 * kTick, [&] { return std::filesystem::exists(manifest); })) {
      ++committed;
    }
    const std::string before = CheckpointPath(update - 1);
    EXPECT_TRUE(wait(6000 * kTick, [&] {
      return std::filesystem::exists(StrCat(before, "/", ShardName(0, 2))) &&
             std::filesystem::exists(StrCat(before, "/", ShardName(1, 2)));
    })) << update;
    if (committed > 0) return;
    std::this_thread::sleep_for(helpers_need);
    helpers_need *= 2;
  };
  ASSERT_TRUE(Train(job, 2, 1, "never").ok());
  EXPECT_GE(committed, 1);
}

// For a second the folder of the last save cannot be made.
TEST_F(SavingTest, RetriesFailedLastSave) {
  Job job = SmallJob();
  job.max_updates = 6;
  std::jthread repair;
  look_ = [&](int rank, std::int64_t update) {
    if (rank != 0 || update != 6) return;
    std::ofstream(CheckpointPath(6)) << "in the way";
    repair = std::jthread([&] {
      std::this_thread::sleep_for(100 * kTick);
      std::filesystem::remove(CheckpointPath(6));
    });
  };
  const auto trained = Train(job, 2, 6, "never");
  ASSERT_TRUE(trained.ok()) << trained.status().message();
  EXPECT_TRUE(std::filesystem::exists(StrCat(CheckpointPath(6), "/", kManifestName)));
}

// Update 5 makes parameters infinite: neither a save that is due nor one of a stop takes the place
// of an intact checkpoint.
TEST_F(SavingTest, KeepsCheckpointsBeforeParametersOverflow) {
  Job job = SmallJob();
  job.optimizer = {.lr = 1e-7, .kind = SgdSpec{}};
  job.schedule = {.shape = StepDecaySpec{.every_updates = 4, .gamma = 1e47}};
  keep_ = 1;
  const Place inside{.update = 6, .done = 1};
  const Place boundary{.update = 5, .done = 1, .at_boundary = true};
  for (const OnNonfinite policy : {OnNonfinite::kStop, OnNonfinite::kSkipUpdate}) {
    guards_.on_nonfinite = policy;
    for (const Place& stop : {Place{}, inside, boundary}) {
      std::filesystem::remove_all(ckpt());
      const std::int64_t every = stop.update == 0 ? 1 : 3;
      EXPECT_THAT(Train(job, 2, every, "never", stop),
                  IsError(ErrorKind::kNoRequeue, "after update 5", "the optimiser has made"));
      const auto comm = MakeSingle();
      EXPECT_OK(LoadGeneration(*comm, ckpt(), {.epoch = 1, .step = every == 1 ? 4 : 3},
                               [](const Manifest&, const Job&) { return Status::Ok(); })
                    .status());
    }
  }
}

}  // namespace
}  // namespace gaccd
