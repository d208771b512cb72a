// When a training saves, and how saves that take long or fail are handled.
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "daemon/checkpoint/manifest.h"
#include "daemon/checkpoint/shard.h"
#include "tests/support/resume_fixture.h"

namespace gaccd {
namespace {

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

}  // namespace
}  // namespace gaccd
