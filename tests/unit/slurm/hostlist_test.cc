#include "slurm/hostlist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using Hosts = std::vector<std::string>;

Hosts Expand(std::string_view list) {
  auto hosts = ExpandHostlist(list);
  EXPECT_TRUE(hosts.ok()) << hosts.status().message();
  return hosts.ok() ? *hosts : Hosts{};
}

// The cases without a suffix after the bracket were compared with `scontrol show hostnames` 22.05.
TEST(Hostlist, Expands) {
  EXPECT_THAT(Expand("login"), ElementsAre("login"));
  EXPECT_THAT(Expand("n1,n2"), ElementsAre("n1", "n2"));
  EXPECT_THAT(Expand("tux[1-3,07]"), ElementsAre("tux1", "tux2", "tux3", "tux07"));
  EXPECT_THAT(Expand("tux[1-3,07]-ib"), ElementsAre("tux1-ib", "tux2-ib", "tux3-ib", "tux07-ib"));
  EXPECT_THAT(Expand("a[08-11],b7"), ElementsAre("a08", "a09", "a10", "a11", "b7"));
  EXPECT_THAT(Expand("a[9-010]"), ElementsAre("a9", "a10"));
  EXPECT_THAT(Expand("rack[0-1]node[0-1]"),
              ElementsAre("rack0node0", "rack0node1", "rack1node0", "rack1node1"));
  EXPECT_THAT(Expand("r[1-2]n[08-09].site_a"),
              ElementsAre("r1n08.site_a", "r1n09.site_a", "r2n08.site_a", "r2n09.site_a"));
  EXPECT_THAT(Expand("x[1,1]"), ElementsAre("x1", "x1"));
  EXPECT_THAT(Expand("[3-4]"), ElementsAre("3", "4"));
  EXPECT_THAT(Expand("a[1][2]"), ElementsAre("a12"));
}

TEST(Hostlist, RefusesInvalidLists) {
  struct Case {
    std::string list;
    std::string says;
  };
  const std::vector<Case> cases = {
      {"", "empty"},
      {",", "position 1"},
      {"a,", "position 3"},
      {"a,,b", "position 3"},
      {"a[1-2", "a [ without its ]"},
      {"a1-2]", "']' at position 5"},
      {"a[]", "found \"\""},
      {"a[1,]", "found \"\""},
      {"a[3-1]", "found \"3-1\""},
      {"a[-3]", "found \"-3\""},
      {"a[1-]", "found \"1-\""},
      {"a[1-2-3]", "found \"1-2-3\""},
      {"a[x]", "found \"x\""},
      {"a[[1]]", "found \"[1\""},
      {"a b", "' ' at position 2"},
      {"a[1234567890123456789]", "found \"1234567890123456789\""},
      {std::string(256, 'a'), "256 characters"},
  };
  for (const Case& c : cases) {
    EXPECT_THAT(ExpandHostlist(c.list), IsError(ErrorKind::kConfig, c.says)) << c.list;
  }
}

TEST(Hostlist, IsBoundedBeforeExpansion) {
  for (const char* list : {"a[0-999999999999999999]", "a[0-65535]b[0-65535]c[0-65535]d[0-65535]",
                           "a[1-65536],b", "a[0-999999999999999999,0-999999999999999999]"}) {
    const auto hosts = ExpandHostlist(list);
    EXPECT_THAT(hosts, HasMessage(HasSubstr("more than 65536 hosts"))) << list;
  }
  EXPECT_EQ(Expand("a[1-65536]").size(), 65536U);
  EXPECT_TRUE(ExpandHostlist("a[1-4]", 4).ok());
  EXPECT_FALSE(ExpandHostlist("a[1-4]", 3).ok());
  EXPECT_FALSE(ExpandHostlist("a,b,c,d", 3).ok());
}

TEST(Hostlist, TruncatesLongLists) {
  const auto hosts = ExpandHostlist(std::string(100'000, '['));
  ASSERT_FALSE(hosts.ok());
  EXPECT_LT(hosts.status().message().size(), 500U);
}

TEST(Hostlist, Compresses) {
  EXPECT_EQ(CompressHostlist({"n1", "n2", "n3", "n3"}), "n[1-3]");
  EXPECT_EQ(CompressHostlist({"n9", "n10", "n12"}), "n[9-10,12]");
  EXPECT_EQ(CompressHostlist({"n0", "n9", "n10"}), "n[0,9-10]");
  EXPECT_EQ(CompressHostlist({"node001", "node002", "node100"}), "node[001-002,100]");
  EXPECT_EQ(CompressHostlist({"login", "n7"}), "n7,login");
  EXPECT_EQ(CompressHostlist({"r1n1", "r1n2", "r2n1"}), "r1n[1-2],r2n1");
  EXPECT_EQ(CompressHostlist({"x123456789012345678901234567890"}),
            "x123456789012345678901234567890");
}

}  // namespace
}  // namespace gaccd
