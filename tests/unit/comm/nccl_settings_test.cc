// Roots of unique ids and the environment of ranks that share a GPU.
#include "collectives/comm/nccl_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>

namespace gaccd {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

Environment Variables(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

TEST(NcclRoots, OneRootForSmallWorldsOnePerPartForLarge) {
  EXPECT_THAT(NcclRoots(1), ElementsAre(0));
  EXPECT_THAT(NcclRoots(64), ElementsAre(0));
  EXPECT_THAT(NcclRoots(65), ElementsAre(0, 33));
  EXPECT_THAT(NcclRoots(240), ElementsAre(0, 60, 120, 180));
  EXPECT_THAT(NcclRoots(7, 2), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(NcclRoots(7, 3), ElementsAre(0, 3, 5));
}

TEST(NcclRoots, PartsAreAtMostRequestedSize) {
  for (int ranks = 1; ranks <= 300; ++ranks) {
    for (const int most : {1, 2, 7, 64}) {
      std::vector<int> roots = NcclRoots(ranks, most);
      ASSERT_EQ(roots.front(), 0);
      roots.push_back(ranks);
      for (std::size_t i = 1; i < roots.size(); ++i) {
        ASSERT_GT(roots[i], roots[i - 1]) << ranks << " ranks, " << most << " a root";
        ASSERT_LE(roots[i] - roots[i - 1], most) << ranks << " ranks, " << most << " a root";
      }
    }
  }
}

TEST(NcclSettings, DisablesOpenServices) {
  EXPECT_THAT(NcclSettings(), Contains(Pair("NCCL_RAS_ENABLE", "0")));
}

TEST(NcclSettings, StreamsHaveHardwareQueuesOfTheirOwn) {
  EXPECT_THAT(NcclSettings(), Contains(Pair("CUDA_DEVICE_MAX_CONNECTIONS", "32")));
  const auto warning = [](const std::string& queues) {
    return FewHardwareQueues(Variables({{"CUDA_DEVICE_MAX_CONNECTIONS", queues}}));
  };
  EXPECT_EQ(FewHardwareQueues(Variables({})), "");
  EXPECT_EQ(warning("8"), "");
  EXPECT_EQ(warning("x"), "");
  EXPECT_THAT(warning("1"), HasSubstr("expected at least 8 for a pipeline, found 1"));
}

TEST(NcclSettings, DeterministicUsesOneAlgorithmWithoutSwitchSums) {
  EXPECT_THAT(NcclDeterministicSettings(),
              ElementsAre(Pair("NCCL_NVLS_ENABLE", "0"), Pair("NCCL_ALGO", "Ring")));
}

TEST(NcclSettings, UsesWindowsOnlyOnRequest) {
  EXPECT_THAT(NcclSettings(), Contains(Pair("NCCL_WIN_ENABLE", "0")));
  EXPECT_FALSE(NcclWindowsWanted(Variables({})));
  EXPECT_FALSE(NcclWindowsWanted(Variables({{"NCCL_WIN_ENABLE", "0"}})));
  EXPECT_TRUE(NcclWindowsWanted(Variables({{"NCCL_WIN_ENABLE", "1"}})));
}

TEST(NcclSettings, KeepsUserMultiprocessors) {
  EXPECT_EQ(NcclMaxCtas(Variables({})), kNcclMaxCtas);
  EXPECT_EQ(NcclMaxCtas(Variables({{"NCCL_MAX_CTAS", "8"}})), 8);
  for (const char* wrong : {"", "0", "-1", "x", "8x", "99999999999"}) {
    EXPECT_EQ(NcclMaxCtas(Variables({{"NCCL_MAX_CTAS", wrong}})), kNcclMaxCtas) << wrong;
  }
}

TEST(NcclSharing, EveryRankIsASeparateHost) {
  const EnvironmentSettings settings = NcclSharingSettings(Variables({}), "n0-17");
  EXPECT_THAT(settings, Contains(Pair("NCCL_HOSTID", "n0-17")));
  EXPECT_THAT(settings, Contains(Pair("NCCL_NET", "Socket")));
}

TEST(NcclSharing, UsesLoopbackOnlyOnOneMachine) {
  const auto loopback = Contains(Pair("NCCL_SOCKET_IFNAME", "lo"));
  const auto settings = [](const std::map<std::string, std::string>& variables) {
    return NcclSharingSettings(Variables(variables), "n0-17");
  };
  EXPECT_THAT(settings({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
              loopback);
  EXPECT_THAT(settings({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
              ::testing::Not(loopback));
  EXPECT_THAT(settings({{"SLURM_STEP_NUM_NODES", "1"}}), loopback);
  EXPECT_THAT(settings({{"SLURM_STEP_NUM_NODES", "2"}}), ::testing::Not(loopback));
  EXPECT_THAT(settings({}), ::testing::Not(loopback));
}

TEST(NcclSharing, KeepsUserSettings) {
  const EnvironmentSettings settings = {{"NCCL_NET", "Socket"}, {"NCCL_ALGO", "Ring"}};
  EXPECT_THAT(MissingSettings(settings, Variables({{"NCCL_NET", "IB"}})),
              ElementsAre(Pair("NCCL_ALGO", "Ring")));
  EXPECT_THAT(MissingSettings(settings, Variables({{"NCCL_NET", ""}})),
              ElementsAre(Pair("NCCL_ALGO", "Ring")));
}

TEST(NcclSharing, SetsEnvironment) {
  ApplySettings({{"GACCD_TEST_OF_SETTINGS", "x1"}});
  EXPECT_STREQ(std::getenv("GACCD_TEST_OF_SETTINGS"), "x1");
  unsetenv("GACCD_TEST_OF_SETTINGS");
}

}  // namespace
}  // namespace gaccd
