// Answers as real SLURM 22.05 gives them, shortened.
#include "daemon/submit/slurm_site.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gaccd {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const SiteAnswers kSite{
    .partitions =
        "PartitionName=main AllowGroups=ALL Default=YES DefaultTime=00:20:00 MaxTime=1-00:00:00 "
        "PreemptMode=REQUEUE State=UP\n"
        "PartitionName=cheap AllowGroups=ALL Default=NO DefaultTime=NONE MaxTime=00:10:00 "
        "PreemptMode=GANG,CANCEL State=UP\n"
        "PartitionName=long Default=NO DefaultTime=NONE MaxTime=UNLIMITED State=UP\n",
    .mpi_types =
        "MPI plugin types are...\n\tnone\n\tpmi2\n\tpmix\n"
        "specific pmix plugin versions available: pmix_v3,pmix_v4\n"};

TEST(SiteWarnings, AreAboutTheseJobsPartitions) {
  EXPECT_THAT(SiteWarnings(kSite, "", "pmix"), IsEmpty());
  EXPECT_THAT(SiteWarnings(kSite, "main", "pmix"), IsEmpty());
  EXPECT_THAT(SiteWarnings(kSite, "main,cheap", "pmix"),
              ElementsAre(AllOf(HasSubstr("partition cheap"), HasSubstr("GANG,CANCEL"))));
  EXPECT_THAT(SiteWarnings(kSite, "mian", "pmix"), ElementsAre("there is no partition mian"));
  SiteAnswers other = kSite;
  other.partitions.replace(other.partitions.find("REQUEUE"), 7, "CANCEL");
  EXPECT_THAT(SiteWarnings(other, "", "pmix"), ElementsAre(HasSubstr("partition main")));
}

TEST(SiteWarnings, AnMpiThatIsNotThere) {
  EXPECT_THAT(SiteWarnings(kSite, "", "pmix_v4"), IsEmpty());
  EXPECT_THAT(SiteWarnings(kSite, "", "pmi"),
              ElementsAre(AllOf(HasSubstr("--mpi=pmi here"), HasSubstr("none pmi2 pmix"))));
  SiteAnswers older = kSite;
  older.mpi_types = "srun: MPI types are...\nsrun: none\nsrun: pmi2\n";
  EXPECT_THAT(SiteWarnings(older, "", "pmi2"), IsEmpty());
  EXPECT_THAT(SiteWarnings(older, "", "pmix"), ElementsAre(HasSubstr("--mpi=pmix")));
}

TEST(TimeLimitOf, IsTheDefaultElseTheMost) {
  EXPECT_EQ(TimeLimitOf(kSite, ""), 1200);
  EXPECT_EQ(TimeLimitOf(kSite, "cheap"), 600);
  EXPECT_EQ(TimeLimitOf(kSite, "long,main,cheap"), 600);
  EXPECT_EQ(TimeLimitOf(kSite, "long"), std::nullopt);
  EXPECT_EQ(TimeLimitOf(kSite, "mian"), std::nullopt);
  EXPECT_EQ(TimeLimitOf({}, ""), std::nullopt);
}

TEST(SiteWarnings, WhoGaveNoAnswerIsNotBlamed) {
  EXPECT_THAT(SiteWarnings({}, "main", "pmix"), IsEmpty());
}

}  // namespace
}  // namespace gaccd
