#include "daemon/engine/sample_ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "collectives/comm/threads.h"
#include "daemon/plan/plan.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

ThreadGroupOptions Short() {
  return {.comm = {.bound = std::chrono::seconds(20)}, .ranks_per_node = 0};
}

Status SumAndAudit(SampleLedger& ledger, Communicator& comm, std::int64_t planned) {
  std::int64_t total = ledger.counted();
  const std::span<std::int64_t> sum(&total, 1);
  GACCD_RETURN_IF_ERROR(comm.AllReduceSum(View(sum), View(sum)));
  return ledger.Audit(comm, total, planned);
}

TEST(SampleLedgerTest, AcceptsPlannedCountAndRestarts) {
  const auto comm = MakeSingle();
  SampleLedger ledger;
  for (int update = 0; update < 2; ++update) {
    ledger.Add(7);
    ledger.Add(6);
    ledger.Add(0);
    EXPECT_EQ(ledger.counted(), 13);
    EXPECT_TRUE(SumAndAudit(ledger, *comm, 13).ok());
    EXPECT_EQ(ledger.counted(), 0);
  }
}

TEST(SampleLedgerTest, RaggedLoadsAddUp) {
  const auto plan =
      Plan::Make({.nodes = 1, .gpus_per_node = 5, .micro_batch = 4, .target_batch = 33});
  ASSERT_TRUE(plan.ok());
  ExpectOk(RunThreadRanks(5, Short(), [&](Communicator& comm) -> Status {
    SampleLedger ledger;
    for (int update = 0; update < 3; ++update) {
      for (std::int64_t step = 0; step < plan->accum_steps(); ++step) {
        ledger.Add(plan->MicroBatch(comm.rank(), step));
      }
      GACCD_RETURN_IF_ERROR(SumAndAudit(ledger, comm, plan->effective_batch()));
    }
    return Status::Ok();
  }));
}

// A rank that skips a micro-batch is named by its count, and every rank learns it.
TEST(SampleLedgerTest, MismatchNamesBothSumsAndAllCountsOnEveryRank) {
  std::mutex mutex;
  std::vector<Status> seen;
  ExpectOk(RunThreadRanks(3, Short(), [&](Communicator& comm) {
    SampleLedger ledger;
    ledger.Add(comm.rank() == 1 ? 9 : 13);
    Status audit = SumAndAudit(ledger, comm, 39);
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

TEST(SampleLedgerTest, CountsBeyond32Bits) {
  const auto comm = MakeSingle();
  SampleLedger ledger;
  ledger.Add(std::int64_t{1} << 40);
  EXPECT_TRUE(SumAndAudit(ledger, *comm, std::int64_t{1} << 40).ok());
}

TEST(SampleLedgerTest, InverseCountRequiresSample) {
  EXPECT_EQ(*InverseCount(3072), 1.0 / 3072);
  for (const std::int64_t count : {0, -1}) {
    EXPECT_THAT(InverseCount(count), IsError(ErrorKind::kInternal, std::to_string(count)));
  }
}

}  // namespace
}  // namespace gaccd
