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
using ::testing::Pair;

Environment Variables(const std::map<std::string, std::string>& variables) {
  return [variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  };
}

Topology TwoRanks(int nodes) {
  Topology topology;
  topology.hosts = {"n0", nodes == 1 ? "n0" : "n1"};
  topology.node_of = {0, nodes - 1};
  topology.nodes = nodes;
  return topology;
}

TEST(NcclRoots, OneForSmallWorldsAndTheFirstOfEachPartForLargeOnes) {
  EXPECT_THAT(NcclRoots(1), ElementsAre(0));
  EXPECT_THAT(NcclRoots(64), ElementsAre(0));
  EXPECT_THAT(NcclRoots(65), ElementsAre(0, 33));
  EXPECT_THAT(NcclRoots(240), ElementsAre(0, 60, 120, 180));
  EXPECT_THAT(NcclRoots(7, 2), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(NcclRoots(7, 3), ElementsAre(0, 3, 5));
}

TEST(NcclRoots, NoPartIsLargerThanAsked) {
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

TEST(NcclSettings, NoServiceThatAnswersStrangers) {
  EXPECT_THAT(NcclSettings(), Contains(Pair("NCCL_RAS_ENABLE", "0")));
}

TEST(NcclSharing, EveryRankIsAHostOfItsOwn) {
  EXPECT_THAT(NcclSharingSettings(TwoRanks(1), 0), Contains(Pair("NCCL_HOSTID", "n0-r0")));
  EXPECT_THAT(NcclSharingSettings(TwoRanks(1), 1), Contains(Pair("NCCL_HOSTID", "n0-r1")));
  EXPECT_THAT(NcclSharingSettings(TwoRanks(1), 1), Contains(Pair("NCCL_NET", "Socket")));
}

TEST(NcclSharing, LoopbackOnlyWhereAllRanksAreOnOneMachine) {
  const auto loopback = Pair("NCCL_SOCKET_IFNAME", "lo");
  EXPECT_THAT(NcclSharingSettings(TwoRanks(1), 0), Contains(loopback));
  EXPECT_THAT(NcclSharingSettings(TwoRanks(2), 0), ::testing::Not(Contains(loopback)));
}

TEST(NcclSharing, WhatTheUserHasSetStays) {
  const EnvironmentSettings settings = {{"NCCL_NET", "Socket"}, {"NCCL_ALGO", "Ring"}};
  EXPECT_THAT(MissingSettings(settings, Variables({{"NCCL_NET", "IB"}})),
              ElementsAre(Pair("NCCL_ALGO", "Ring")));
  EXPECT_THAT(MissingSettings(settings, Variables({{"NCCL_NET", ""}})),
              ElementsAre(Pair("NCCL_ALGO", "Ring")));
}

TEST(NcclSharing, SettingsArriveInTheEnvironment) {
  ApplySettings({{"GACCD_TEST_OF_SETTINGS", "x1"}});
  EXPECT_STREQ(std::getenv("GACCD_TEST_OF_SETTINGS"), "x1");
  unsetenv("GACCD_TEST_OF_SETTINGS");
}

}  // namespace
}  // namespace gaccd
