#include "daemon/train/done_marker.h"

#include <gtest/gtest.h>

#include <string>
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

}  // namespace
}  // namespace gaccd
