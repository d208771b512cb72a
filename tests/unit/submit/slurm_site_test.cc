// Answers as real SLURM 22.05 gives them, shortened.
#include "daemon/submit/slurm_site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

const SiteOutputs kSite{
    .partitions =
        "PartitionName=main AllowGroups=ALL Default=YES DefaultTime=00:20:00 MaxTime=1-00:00:00 "
        "PreemptMode=REQUEUE State=UP\n"
        "PartitionName=cheap AllowGroups=ALL Default=NO DefaultTime=NONE MaxTime=00:10:00 "
        "PreemptMode=GANG,CANCEL State=UP\n"
        "PartitionName=long Default=NO DefaultTime=NONE MaxTime=UNLIMITED State=UP\n",
    .mpi_types =
        "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
        "specific pmix plugin versions available: pmix_v3,pmix_v4\n"};

TEST(SiteWarnings, ConcernPartitionsOfJob) {
  EXPECT_THAT(SiteWarnings(kSite, "", "pmix"), IsEmpty());
  EXPECT_THAT(SiteWarnings(kSite, "main", "pmix"), IsEmpty());
  EXPECT_THAT(SiteWarnings(kSite, "main,cheap", "pmix"),
              ElementsAre(AllOf(HasSubstr("partition cheap"), HasSubstr("GANG,CANCEL"))));
  EXPECT_THAT(SiteWarnings(kSite, "mian", "pmix"), ElementsAre("there is no partition mian"));
  SiteOutputs other = kSite;
  other.partitions.replace(other.partitions.find("REQUEUE"), 7, "CANCEL");
  EXPECT_THAT(SiteWarnings(other, "", "pmix"), ElementsAre(HasSubstr("partition main")));
}

TEST(SiteWarnings, WarnsOfMissingMpi) {
  EXPECT_THAT(SiteWarnings(kSite, "", "pmix_v4"), IsEmpty());
  EXPECT_THAT(SiteWarnings(kSite, "", "pmi"),
              ElementsAre(AllOf(HasSubstr("--mpi=pmi here"), HasSubstr("none pmi2 pmix"))));
  SiteOutputs older = kSite;
  older.mpi_types = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n";
  EXPECT_THAT(SiteWarnings(older, "", "pmi2"), IsEmpty());
  EXPECT_THAT(SiteWarnings(older, "", "pmix"), ElementsAre(HasSubstr("--mpi=pmix")));
}

TEST(DefaultTimeLimit, IsDefaultElseMax) {
  EXPECT_EQ(DefaultTimeLimit(kSite, ""), 1200);
  EXPECT_EQ(DefaultTimeLimit(kSite, "cheap"), 600);
  EXPECT_EQ(DefaultTimeLimit(kSite, "long,main,cheap"), 600);
  EXPECT_EQ(DefaultTimeLimit(kSite, "long"), std::nullopt);
  EXPECT_EQ(DefaultTimeLimit(kSite, "mian"), std::nullopt);
  EXPECT_EQ(DefaultTimeLimit({}, ""), std::nullopt);
}

TEST(StartWarnings, ReportWhyNoPartitionCanStartJob) {
  const SiteOutputs site{
      .partitions =
          "PartitionName=main Default=YES MaxTime=01:00:00 MaxNodes=UNLIMITED State=UP "
          "TotalNodes=4 MaxMemPerNode=8000\n"
          "PartitionName=big MaxTime=UNLIMITED MaxNodes=8 State=UP TotalNodes=64\n"
          "PartitionName=old MaxTime=UNLIMITED State=DOWN TotalNodes=64\n"};
  EXPECT_THAT(StartWarnings(site, "", {.nodes = 4, .time_limit_s = 3600}), IsEmpty());
  EXPECT_THAT(StartWarnings(site, "", {.nodes = 5}),
              ElementsAre(AllOf(HasSubstr("main"), HasSubstr("5 nodes, TotalNodes is 4"))));
  EXPECT_THAT(StartWarnings(site, "main", {.time_limit_s = 3601}),
              ElementsAre(HasSubstr("3601 s, MaxTime is 3600 s")));
  EXPECT_THAT(StartWarnings(site, "main", {.memory_mib = 9000}),
              ElementsAre(HasSubstr("MaxMemPerNode is 8000")));
  EXPECT_THAT(StartWarnings(site, "big", {.nodes = 9}), ElementsAre(HasSubstr("MaxNodes is 8")));
  EXPECT_THAT(StartWarnings(site, "old", {}), ElementsAre(HasSubstr("it is DOWN")));
  // One of a list is enough.
  EXPECT_THAT(StartWarnings(site, "main,big", {.nodes = 8}), IsEmpty());
  EXPECT_THAT(StartWarnings({}, "main", {.nodes = 9}), IsEmpty());
}

TEST(RequeueRules, ReadFromSiteConfiguration) {
  const auto rules = [](const std::string& config) { return ReadRequeueRules({.config = config}); };
  EXPECT_EQ(rules(""), std::nullopt);
  const std::string begin = "Configuration data as of 2026-11-20T03:04:05\n";
  auto site =
      rules(begin + "AuthInfo                = (null)\nSlurmdTimeout           = 300 sec\n");
  ASSERT_TRUE(site.has_value());
  EXPECT_EQ(site->delay_s, 120);
  EXPECT_THAT(site->Text(), AllOf(HasSubstr("waits 120 s"), HasSubstr("SlurmdTimeout=300 sec")));
  site = rules(begin +
               "AuthInfo = socket=/run/munge,cred_expire=30\n"
               "SchedulerParameters = bf_window=9,requeue_delay=5\n");
  EXPECT_EQ(site->delay_s, 5);
  EXPECT_THAT(site->Text(), HasSubstr("SchedulerParameters=requeue_delay"));
  EXPECT_FALSE(site->may_expedite);
  site = rules(begin +
               "AuthInfo = cred_expire=30\nSlurmctldParameters = idle_on_node_suspend,"
               "enable_expedited_requeue\n");
  EXPECT_EQ(site->delay_s, 30);
  EXPECT_TRUE(site->may_expedite);
}

TEST(SiteWarnings, DoNotBlameUnansweredQuery) {
  EXPECT_THAT(SiteWarnings({}, "main", "pmix"), IsEmpty());
}

}  // namespace
}  // namespace gaccd
