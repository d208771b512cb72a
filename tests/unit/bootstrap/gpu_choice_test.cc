// Which GPU is whose, and what is refused.
#include "collectives/bootstrap/gpu_choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/strings.h"
#include "collectives/comm/threads.h"
#include "tests/unit/base/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;

std::vector<GpuFacts> Gpus(const std::vector<std::string>& uuids) {
  std::vector<GpuFacts> gpus;
  for (const std::string& uuid : uuids) {
    GpuFacts facts;
    facts.device = static_cast<int>(gpus.size());
    facts.name = "NVIDIA H200";
    facts.uuid = uuid;
    gpus.push_back(facts);
  }
  return gpus;
}

Topology LocalRank(int rank, int size) {
  Topology topology;
  topology.local_rank = rank;
  topology.local_size = size;
  return topology;
}

TEST(GpuChoice, LocalRankCounts) {
  EXPECT_EQ(ChooseGpu(Gpus({"a", "b", "c"}), LocalRank(2, 3), false)->uuid, "c");
}

TEST(GpuChoice, TheOnlyOneIsItsOwn) {
  EXPECT_EQ(ChooseGpu(Gpus({"a"}), LocalRank(3, 4), false)->uuid, "a");
}

TEST(GpuChoice, FewerGpusThanRanks) {
  const auto refused = ChooseGpu(Gpus({"a", "b"}), LocalRank(2, 3), false);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(refused, HasMessage(HasSubstr("2 GPUs for 3 ranks")));
  EXPECT_EQ(ChooseGpu(Gpus({"a", "b"}), LocalRank(2, 3), true)->uuid, "a");
}

// Runs AgreeOnGpu() with what each rank sees; the error must be the same on all ranks.
Status Agree(const std::vector<Result<std::vector<GpuFacts>>>& seen, bool sharing,
             int ranks_per_node, std::vector<std::string>* chosen) {
  const auto ranks = static_cast<int>(seen.size());
  std::vector<Status> statuses(seen.size());
  chosen->resize(seen.size());
  ThreadGroupOptions options;
  options.ranks_per_node = ranks_per_node;
  const Status run = RunThreadRanks(ranks, options, [&](Communicator& over) {
    const auto rank = static_cast<std::size_t>(over.rank());
    const auto gpu = AgreeOnGpu(over, seen[rank], sharing);
    statuses[rank] = gpu.status();
    if (gpu.ok()) (*chosen)[rank] = gpu->uuid;
    return Status::Ok();
  });
  EXPECT_TRUE(run.ok()) << run.message();
  for (const Status& status : statuses) {
    EXPECT_EQ(status.ok(), statuses[0].ok());
    if (status.ok() || statuses[0].ok()) continue;
    EXPECT_EQ(status.kind(), statuses[0].kind());
    EXPECT_EQ(status.message(), statuses[0].message());
  }
  return statuses[0];
}

TEST(GpuAgreement, OneGpuARankOnTwoNodes) {
  std::vector<std::string> chosen;
  const Status status = Agree(
      {Gpus({"a", "b"}), Gpus({"a", "b"}), Gpus({"c", "d"}), Gpus({"c", "d"})}, false, 2, &chosen);
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_THAT(chosen, ::testing::ElementsAre("a", "b", "c", "d"));
}

TEST(GpuAgreement, OneGpuTwiceIsRefusedWithBothRanks) {
  std::vector<std::string> chosen;
  const std::vector<Result<std::vector<GpuFacts>>> seen = {Gpus({"a"}), Gpus({"b"}), Gpus({"a"})};
  const Status status = Agree(seen, false, 0, &chosen);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(
      status,
      HasMessage(HasSubstr("rank 0 on node0 and rank 2 on node0 both use GPU 0 (NVIDIA H200, a)")));
  ASSERT_TRUE(Agree(seen, true, 0, &chosen).ok());
  EXPECT_THAT(chosen, ::testing::ElementsAre("a", "b", "a"));
}

TEST(GpuAgreement, RankWithoutAGpuFailsAll) {
  std::vector<std::string> chosen;
  const Status status =
      Agree({Gpus({"a"}), Status(ErrorKind::kUnavailable, "no GPU: no driver")}, true, 1, &chosen);
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status, HasKind(ErrorKind::kUnavailable));
  EXPECT_THAT(status, HasMessage(HasSubstr("rank 1 on node1")));
  EXPECT_THAT(status, HasMessage(HasSubstr("no GPU: no driver")));
}

}  // namespace
}  // namespace gaccd
