#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/environment.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/slurm/fake_env.h"

namespace gaccd {
namespace {

TEST(CheckNodes, AcceptsEqualFlags) {
  EXPECT_TRUE(CheckNodes(4, 2, MustRead(BatchScript())).ok());
  EXPECT_TRUE(CheckNodes(3, 1, MustRead(Step())).ok());
  EXPECT_TRUE(CheckNodes({}, {}, MustRead(Step())).ok());
}

TEST(CheckNodes, AcceptsAnythingOutsideAJob) { EXPECT_TRUE(CheckNodes(30, 8, MustRead({})).ok()); }

TEST(CheckNodes, AcceptsAnythingUnderMpirun) {
  const Variables variables = With(Step(), "OMPI_COMM_WORLD_SIZE", "8");
  EXPECT_TRUE(CheckNodes(4, 2, MustRead(variables)).ok());
  EXPECT_EQ(MustRead(variables).nodelist, "n[1-4]");
}

TEST(CheckNodes, NamesFlagVariableAndBothValues) {
  const Status nodes = CheckNodes(30, {}, MustRead(BatchScript()));
  EXPECT_THAT(nodes, IsError(ErrorKind::kConfig, "--nodes=30", "SLURM_JOB_NUM_NODES=4"));

  const Status gpus = CheckNodes({}, 8, MustRead(Step()));
  EXPECT_THAT(gpus,
              IsError(ErrorKind::kConfig, "--gpus-per-node=8", "SLURM_STEP_TASKS_PER_NODE=1(x3)"));
}

TEST(CheckNodes, RequiresTasksPerNode) {
  Variables variables = BatchScript();
  variables = With(variables, "SLURM_TASKS_PER_NODE", "2(x3),1");
  EXPECT_FALSE(CheckNodes({}, 2, MustRead(variables)).ok());
  EXPECT_FALSE(CheckNodes({}, 1, MustRead(variables)).ok());
}

}  // namespace
}  // namespace gaccd
