#include "daemon/engine/sample_audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// A rank that skips a micro-batch is named by its count, and every rank learns it.
TEST(SampleAuditTest, NamesBothSumsAndAllCountsOnEveryRank) {
  std::mutex mutex;
  std::vector<Status> seen;
  const ThreadGroupOptions options{.comm = {.bound = std::chrono::seconds(20)},
                                   .ranks_per_node = 0};
  ExpectOk(RunThreadRanks(3, options, [&](Communicator& comm) {
    Status audit = SampleCountError(comm, comm.rank() == 1 ? 9 : 13, 35, 39);
    const std::lock_guard lock(mutex);
    seen.push_back(std::move(audit));
    return Status::Ok();
  }));
  ASSERT_EQ(seen.size(), 3u);
  for (const Status& audit : seen) {
    EXPECT_THAT(audit, IsError(ErrorKind::kInternal, "the plan has 39 samples",
                               "the ranks counted 35", "rank 0: 13, rank 1: 9, rank 2: 13"));
  }
}

TEST(SampleAuditTest, CountsBeyond32Bits) {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  const auto comm = MakeSingle();
  EXPECT_THAT(SampleCountError(*comm, kMany, kMany, kMany + 1),
              IsError(ErrorKind::kInternal, "1099511627777 samples", "rank 0: 1099511627776"));
}

}  // namespace
}  // namespace gaccd
