#include "collectives/bootstrap/work_together.h"

#include <gtest/gtest.h>

#include <vector>

#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tick_counter.h"

namespace gaccd {
namespace {

TEST(WorkTogetherTest, WaitsForSlowRanks) {
  std::vector<int> ticks(3);
  ASSERT_OK(RunThreadRanks(3, {}, [&](Communicator& inner) {
    TickCounter comm(inner);
    const auto rank = static_cast<std::size_t>(comm.rank());
    const Agreement worked = WorkTogether(comm, [&](const TickFunction& tick) -> Status {
      for (int i = 0; i < 4 * comm.rank(); ++i) GACCD_RETURN_IF_ERROR(tick());
      return Status::Ok();
    });
    ticks[rank] = comm.ticks();
    return worked.status;
  }));
  EXPECT_EQ(ticks, (std::vector{0, 4, 8}));
}

TEST(WorkTogetherTest, AllRanksReturnErrorOfWork) {
  ASSERT_OK(RunThreadRanks(3, {}, [&](Communicator& comm) {
    const Agreement worked = WorkTogether(comm, [&](const TickFunction& tick) -> Status {
      if (comm.rank() == 1) return {ErrorKind::kData, "bad file"};
      return tick();
    });
    EXPECT_THAT(worked.status, IsError(ErrorKind::kData, "rank 1 on ", "bad file"));
    EXPECT_EQ(worked.reporting_rank, 1);
    return Status::Ok();
  }));
}

// Of what a work reads, an error of a tick may look like damage.
TEST(WorkTogetherTest, LostRanksAreTheError) {
  Status found;
  (void)RunThreadRanks(2, {}, [&](Communicator& comm) {
    if (comm.rank() == 1) return Status(ErrorKind::kOs, "gone");
    int calls = 0;
    found = WorkTogether(comm, [&](const TickFunction& tick) -> Status {
              while (tick().ok()) ++calls;
              EXPECT_FALSE(tick().ok());
              return {ErrorKind::kData, "cannot read"};
            }).status;
    EXPECT_EQ(calls, 0);
    return found;
  });
  EXPECT_THAT(found, HasKind(ErrorKind::kUnavailable));
}

}  // namespace
}  // namespace gaccd
