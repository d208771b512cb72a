#include "daemon/train/done_marker.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/comm/threads.h"
#include "daemon/config/job_text.h"
#include "tests/support/small_run.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tick_counter.h"

namespace gaccd {
namespace {

// The others wait for rank 0, which reads the checkpoint and writes the file.
TEST(DoneMarkerTest, RankZeroSendsHeartbeatsWhileWritingWeights) {
  const TempFolder folder;
  const SmallRun run;
  ASSERT_OK(SaveSteps(run, 2, {.folder = folder.Path("ckpt")}, {6}));
  const Job job = ValueOrThrow(ParseJobText(run.job, "job"));
  ASSERT_OK(MarkDone(folder.path(), "6 updates", job, kFileMode));
  const Plan plan = *ValueOrThrow(ReadManifest(folder.Path("ckpt"), {.epoch = 1, .step = 6})).plan;
  Flags flags;
  flags.run_dir = folder.path();
  flags.save_weights = folder.Path("w");
  std::vector<int> ticks(3);
  ASSERT_OK(RunThreadRanks(3, {}, [&](Communicator& inner) -> Status {
    TickCounter comm(inner);
    GACCD_ASSIGN_OR_RETURN(const DoneRun done, FindDone(comm, flags, job, plan, false));
    EXPECT_EQ(done.next, DoneRun::Next::kNothing);
    EXPECT_THAT(done.text, HasSubstr("the parameters after 6 updates"));
    ticks[static_cast<std::size_t>(comm.rank())] = comm.ticks();
    return Status::Ok();
  }));
  EXPECT_TRUE(PathExists(folder.Path("w")));
  EXPECT_THAT(ticks, ElementsAre(testing::Ge(1), 0, 0));
}

class CompleteRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(SaveSteps(run_, 1, {.folder = folder_.Path("ckpt")}, {6}));
    plan_ = *ValueOrThrow(ReadManifest(folder_.Path("ckpt"), {.epoch = 1, .step = 6})).plan;
    job_.max_updates = 6;
    ASSERT_OK(MarkDone(folder_.path(), "6 updates", job_, kFileMode));
    flags_.run_dir = folder_.path();
  }
  Result<DoneRun> Find(std::int64_t max_updates) {
    Job job = job_;
    job.max_updates = max_updates;
    return FindDone(*MakeSingle(), flags_, job, *plan_, false);
  }

  const TempFolder folder_;
  const SmallRun run_;  // of 1,000,000 updates
  Job job_ = ValueOrThrow(ParseJobText(run_.job, "job"));
  std::optional<Plan> plan_;
  Flags flags_;
};

// It was continued with fewer updates, those that its checkpoint already had: nothing was saved.
TEST_F(CompleteRunTest, LengthIsThatOfTheLastStart) {
  const auto same = Find(6);
  ASSERT_OK(same);
  EXPECT_EQ(same->next, DoneRun::Next::kNothing);
  const auto longer = Find(8);
  ASSERT_OK(longer);
  EXPECT_EQ(longer->next, DoneRun::Next::kContinue);
  EXPECT_THAT(Find(5), IsError(ErrorKind::kConfig, "max_updates: 6 -> 5"));
}

// As those of another user, or on a disk that fails.
TEST_F(CompleteRunTest, UnreadableCheckpointIsNotMissing) {
  const std::string manifest = folder_.Path("ckpt/step-000000000006-e000001/MANIFEST");
  std::filesystem::remove(manifest);
  std::filesystem::create_directory(manifest);
  EXPECT_THAT(Find(8), IsError(ErrorKind::kIo, "MANIFEST"));
}

}  // namespace
}  // namespace gaccd
