#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/environment.h"
#include "tests/unit/slurm/fake_env.h"

namespace gaccd {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CheckNodes, FlagsThatAgreePass) {
  EXPECT_TRUE(CheckNodes(4, 2, MustRead(BatchScript())).ok());
  EXPECT_TRUE(CheckNodes(3, 1, MustRead(Step())).ok());
  EXPECT_TRUE(CheckNodes({}, {}, MustRead(Step())).ok());
}

TEST(CheckNodes, OutsideAJobAnythingPasses) { EXPECT_TRUE(CheckNodes(30, 8, MustRead({})).ok()); }

TEST(CheckNodes, NamesFlagVariableAndBothValues) {
  const Status nodes = CheckNodes(30, {}, MustRead(BatchScript()));
  ASSERT_FALSE(nodes.ok());
  EXPECT_EQ(nodes.kind(), ErrorKind::kConfig);
  EXPECT_THAT(nodes.message(), AllOf(HasSubstr("--nodes=30"), HasSubstr("SLURM_JOB_NUM_NODES=4")));

  const Status gpus = CheckNodes({}, 8, MustRead(Step()));
  ASSERT_FALSE(gpus.ok());
  EXPECT_EQ(gpus.kind(), ErrorKind::kConfig);
  EXPECT_THAT(gpus.message(),
              AllOf(HasSubstr("--gpus-per-node=8"), HasSubstr("SLURM_STEP_TASKS_PER_NODE=1(x3)")));
}

TEST(CheckNodes, EveryNodeMustRunThatManyTasks) {
  Variables variables = BatchScript();
  variables = With(variables, "SLURM_TASKS_PER_NODE", "2(x3),1");
  EXPECT_FALSE(CheckNodes({}, 2, MustRead(variables)).ok());
  EXPECT_FALSE(CheckNodes({}, 1, MustRead(variables)).ok());
}

TEST(CheckMpiLauncher, NeedsAPmiServerInAStep) {
  EXPECT_TRUE(CheckMpiLauncher(MustRead({})).ok());
  EXPECT_TRUE(CheckMpiLauncher(MustRead(BatchScript())).ok());
  EXPECT_TRUE(CheckMpiLauncher(MustRead(Step())).ok());

  Variables variables = Step();
  variables.erase("PMIX_RANK");
  variables = With(variables, "SLURM_MPI_TYPE", "none");
  const Status status = CheckMpiLauncher(MustRead(variables));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::kConfig);
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("SLURM_STEP_NUM_TASKS=3"), HasSubstr("1 rank"),
                    HasSubstr("SLURM_MPI_TYPE=none"), HasSubstr("srun --mpi=pmix")));
}

TEST(CheckWorldSize, ComparesWithTheLauncher) {
  EXPECT_TRUE(CheckWorldSize(7, MustRead({})).ok());
  EXPECT_TRUE(CheckWorldSize(1, MustRead(BatchScript())).ok());
  EXPECT_TRUE(CheckWorldSize(3, MustRead(Step())).ok());
  const Status status = CheckWorldSize(1, MustRead(Step()));
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.kind(), ErrorKind::kConfig);
  EXPECT_THAT(status.message(), AllOf(HasSubstr("1 rank"), HasSubstr("SLURM_STEP_NUM_TASKS=3")));
}

// mpirun starts one daemon a node as the step; the ranks are the daemons' children.
TEST(CheckWorldSize, MpirunInsideSlurmCountsItsOwnRanks) {
  Variables variables = Step();
  variables = With(variables, "OMPI_COMM_WORLD_SIZE", "24");
  EXPECT_TRUE(CheckWorldSize(24, MustRead(variables)).ok());
  const Status status = CheckWorldSize(3, MustRead(variables));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status.message(), HasSubstr("OMPI_COMM_WORLD_SIZE=24"));
}

}  // namespace
}  // namespace gaccd
