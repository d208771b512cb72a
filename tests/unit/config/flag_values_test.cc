#include "daemon/config/flag_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectives/base/strings.h"
#include "daemon/config/make_plan.h"
#include "tests/support/status_matchers.h"

namespace gaccd {

namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Flags WithSpeed(const std::string& speed) {
  Flags flags;
  flags.nodes = 30;
  flags.speed = speed;
  flags.job_fields.push_back({"batch.target", "3072"});
  return flags;
}

TEST(SpeedFlagTest, HostListsAsSlurmWritesThem) {
  const auto flag = ParseSpeedFlag("n[1-2,07]:1,x,rack[0-1]n[8-9]:0.6");
  EXPECT_THAT(flag.status(), HasMessage(HasSubstr("'x': expected HOSTS:SPEED")));
  const auto good = ParseSpeedFlag("n[1-2,07]:1,x:2e-1,rack[0-1]n[8-9]:0.6");
  ASSERT_TRUE(good.ok()) << good.status().message();
  EXPECT_FALSE(good->measured);
  std::string all;
  for (const HostSpeed& one : good->hosts) all += one.host + "=" + std::to_string(one.speed) + " ";
  EXPECT_EQ(all,
            "n1=1.000000 n2=1.000000 n07=1.000000 x=0.200000 rack0n8=0.600000 rack0n9=0.600000 "
            "rack1n8=0.600000 rack1n9=0.600000 ");
  EXPECT_TRUE(ParseSpeedFlag("measured")->measured);
}

TEST(SpeedFlagTest, NamesMistakes) {
  const auto error = [](std::string_view text) { return ParseSpeedFlag(text).status(); };
  EXPECT_THAT(error("n1:0"), HasMessage("--speed: 'n1:0': expected a speed from 1e-06 to 1e+06, "
                                        "found '0'"));
  for (const char* wrong :
       {"n1:-1", "n1:nan", "n1:inf", "n1:", "n1:1x", ":1", "n1", "", "n1:1,", "n[1-:1", "n[3-1]:1",
        "n1:1,n[1-2]:0.5", "measured:1,measured:2", "n1:1e7"}) {
    EXPECT_THAT(error(wrong), HasKind(ErrorKind::kUsage)) << wrong;
  }
  EXPECT_THAT(error("n[1-3]:1,n2:0.5"), HasMessage("--speed: 'n2:0.5': host n2 is given twice"));
}

TEST(SpeedFlagTest, RanksHaveSpeedOfHost) {
  const std::vector<std::string> hosts{"n1", "n2.cluster.local", "n1", "n3"};
  const auto speeds = [&](std::string_view text) {
    return RankSpeeds(*ParseSpeedFlag(text), hosts);
  };
  EXPECT_THAT(*speeds("n2:0.5"), ElementsAre(1, 0.5, 1, 1));
  EXPECT_THAT(*speeds("n2.cluster.local:0.5,n1:2"), ElementsAre(2, 0.5, 2, 1));
  EXPECT_THAT(*speeds("measured"), ElementsAre());
  EXPECT_THAT(speeds("n2:0.5,n2.cluster.local:1").status(),
              HasMessage("--speed: expected host n2.cluster.local once, found it as n2 and as "
                         "n2.cluster.local"));
  EXPECT_THAT(*speeds("n1.cluster.local:0.5"), ElementsAre(0.5, 1, 0.5, 1)) << "it has no domain";
  EXPECT_THAT(speeds("n2.cluster:0.5").status(), HasMessage(HasSubstr("on which no rank runs")));
  EXPECT_THAT(speeds("n[1-4]:0.5").status(), HasKind(ErrorKind::kConfig));
  EXPECT_THAT(speeds("n[1-4]:0.5").status(),
              HasMessage("--speed names host n4, on which no rank runs: expected one of 3 hosts, "
                         "the first of which is n1"));
}

// n1 and n1.b are two hosts where both are there.
TEST(SpeedFlagTest, NameWithoutDomainMatchesOneHost) {
  const std::vector<std::string> hosts{"n1.a", "n1.b", "n1.a", "n2"};
  const auto speeds = [&](std::string_view text) {
    return RankSpeeds(*ParseSpeedFlag(text), hosts);
  };
  EXPECT_THAT(*speeds("n1.b:0.5,n1.a:2"), ElementsAre(2, 0.5, 2, 1));
  EXPECT_THAT(speeds("n1:0.5").status(),
              HasMessage("--speed: expected the name of one host, found n1, which is n1.a and "
                         "n1.b: give its domain"));
  EXPECT_THAT(speeds("n1.c:0.5").status(), HasMessage(HasSubstr("on which no rank runs")));
  const std::vector<std::string> both{"n1", "n1.b"};
  EXPECT_THAT(*RankSpeeds(*ParseSpeedFlag("n1:0.5"), both), ElementsAre(0.5, 1));
  EXPECT_THAT(*RankSpeeds(*ParseSpeedFlag("n1:0.5,n1.b:0.25"), both), ElementsAre(0.5, 0.25));
}

TEST(SpeedFlagTest, AppliesToFirstNodesBeforeHostsAreKnown) {
  const SpeedFlag flag = *ParseSpeedFlag("n[7-8]:0.5,a:2");
  EXPECT_THAT(*RankSpeedsByNode(flag, 4, 2), ElementsAre(0.5, 0.5, 0.5, 0.5, 2, 2, 1, 1));
  EXPECT_THAT(RankSpeedsByNode(flag, 2, 2).status(), HasMessage(HasSubstr("at most 2 hosts")));
}

TEST(SpeedFlagTest, PlanReportsTimeIdleShareAndGain) {
  const auto output = MakePlanOutput(WithSpeed("n[1-20]:1,n[21-30]:0.6"));
  ASSERT_TRUE(output.ok()) << output.status().message();
  EXPECT_THAT(output->text,
              HasSubstr("  samples        3072 per update, error 0 %\n"
                        "                 112 ranks of speed 1 take 15 samples: 8 + 7\n"
                        "                  48 ranks of speed 1 take 14 samples: 7 + 7\n"
                        "                  80 ranks of speed 0.6 take 9 samples: 9 + 0\n"
                        "  time           15 = largest samples / speed of a rank; idle share "
                        "1.33 %\n"
                        "                 equal loads: 21.6667, so a gain of 1.44 x\n"));
  EXPECT_THAT(output->text, HasSubstr("  without --speed                  2     3072        0 %"
                                      "   1.44  13 or 12\n"));
  EXPECT_THAT(output->text, Not(HasSubstr("divide")));
  Flags json = WithSpeed("n[1-20]:1,n[21-30]:0.6");
  json.format = OutputFormat::kJson;
  EXPECT_THAT(MakePlanOutput(json)->text,
              HasSubstr(R"("speeds":"160x1,80x0.6","slowest_time":15,)"));
}

TEST(MemoryFlagTest, ParsesSizesWithUnits) {
  EXPECT_EQ(ValueOrThrow(ParseMemory("80GB")), 80'000'000'000);
  EXPECT_EQ(ValueOrThrow(ParseMemory("75GiB")), std::int64_t{75} << 30);
  EXPECT_EQ(ValueOrThrow(ParseMemory("1.5 MiB")), 3 << 19);
  EXPECT_EQ(ValueOrThrow(ParseMemory("512kB")), 512'000);
  EXPECT_EQ(ValueOrThrow(ParseMemory("7B")), 7);
  for (const char* const wrong : {"", "80", "GB", "80G", "80 gb", "-1GB", "0GB", "0.1B", "1e3GB",
                                  "nanGB", "infGB", "80GBs", "80  GB", "9999999999999TB"}) {
    EXPECT_THAT(ParseMemory(wrong), IsError(ErrorKind::kUsage, StrCat("'", wrong, "'"), "80GB"));
  }
}

TEST(SpeedFlagTest, EqualSpeedsGiveIdenticalPlan) {
  for (const OutputFormat format :
       {OutputFormat::kText, OutputFormat::kJson, OutputFormat::kTxtpb}) {
    Flags flags = WithSpeed("n[1-30]:0.6");
    flags.format = format;
    const std::string text = MakePlanOutput(flags)->text;
    flags.speed.reset();
    EXPECT_EQ(text, MakePlanOutput(flags)->text);
  }
}

}  // namespace

}  // namespace gaccd
