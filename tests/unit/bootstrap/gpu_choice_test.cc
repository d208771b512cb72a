// Which GPU is whose, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/strings.h"
#include "collectives/bootstrap/gpus.h"
#include "collectives/comm/threads.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

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

TEST(GpuChoice, UsesTheOnlyGpu) {
  EXPECT_EQ(ChooseGpu(Gpus({"a"}), LocalRank(3, 4), false)->uuid, "a");
}

TEST(GpuChoice, FewerGpusThanRanks) {
  EXPECT_THAT(ChooseGpu(Gpus({"a", "b"}), LocalRank(2, 3), false),
              IsError(ErrorKind::kConfig, "2 GPUs for 3 ranks"));
  EXPECT_EQ(ChooseGpu(Gpus({"a", "b"}), LocalRank(2, 3), true)->uuid, "a");
}

TEST(GpuChoice, MoreGpusThanRanks) {
  EXPECT_EQ(UnusedGpus(8, 8), "");
  EXPECT_EQ(UnusedGpus(1, 1), "");
  EXPECT_EQ(UnusedGpus(1, 4), "");  // each sees its own
  EXPECT_THAT(UnusedGpus(8, 1), AllOf(StartsWith("8 GPUs for 1 rank of this node, "),
                                      HasSubstr("--ntasks-per-node=8")));
}

// Runs AssignGpu() with what each rank sees; the error must be the same on all ranks.
Status Agree(const std::vector<std::vector<GpuFacts>>& seen, bool sharing, int ranks_per_node,
             std::vector<std::string>* chosen) {
  const auto ranks = static_cast<int>(seen.size());
  std::vector<Status> statuses(seen.size());
  chosen->resize(seen.size());
  ThreadGroupOptions options;
  options.ranks_per_node = ranks_per_node;
  ExpectOk(RunThreadRanks(ranks, options, [&](Communicator& over) {
    const auto rank = static_cast<std::size_t>(over.rank());
    const auto gpu = AssignGpu(over, seen[rank], sharing);
    statuses[rank] = gpu.status();
    if (gpu.ok()) (*chosen)[rank] = gpu->uuid;
    return Status::Ok();
  }));
  for (const Status& status : statuses) {
    EXPECT_EQ(status.ok(), statuses[0].ok());
    if (status.ok() || statuses[0].ok()) continue;
    EXPECT_EQ(status.kind(), statuses[0].kind());
    EXPECT_EQ(status.message(), statuses[0].message());
  }
  return statuses[0];
}

TEST(GpuAgreement, AcceptsOneGpuPerRankOnTwoNodes) {
  std::vector<std::string> chosen;
  ASSERT_OK(Agree({Gpus({"a", "b"}), Gpus({"a", "b"}), Gpus({"c", "d"}), Gpus({"c", "d"})}, false,
                  2, &chosen));
  EXPECT_THAT(chosen, ::testing::ElementsAre("a", "b", "c", "d"));
}

TEST(GpuAgreement, RefusesSharedGpuNamingBothRanks) {
  std::vector<std::string> chosen;
  const std::vector<std::vector<GpuFacts>> seen = {Gpus({"a"}), Gpus({"b"}), Gpus({"a"})};
  EXPECT_THAT(Agree(seen, false, 0, &chosen),
              IsError(ErrorKind::kConfig,
                      "rank 0 on node0 and rank 2 on node0 both use GPU 0 (NVIDIA H200, a)"));
  ASSERT_TRUE(Agree(seen, true, 0, &chosen).ok());
  EXPECT_THAT(chosen, ::testing::ElementsAre("a", "b", "a"));
}

TEST(GpuAgreement, ErrorOfOneRankFailsAll) {
  std::vector<std::string> chosen;
  const std::vector<std::vector<GpuFacts>> seen(3, Gpus({"a", "b"}));
  EXPECT_THAT(Agree(seen, false, 0, &chosen),
              IsError(ErrorKind::kConfig, "rank 2 on node0", "2 GPUs for 3 ranks"));
}

}  // namespace
}  // namespace gaccd
