#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "slurm/environment.h"
#include "tests/unit/base/status_matchers.h"
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
  EXPECT_THAT(nodes, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(nodes,
              HasMessage(AllOf(HasSubstr("--nodes=30"), HasSubstr("SLURM_JOB_NUM_NODES=4"))));

  const Status gpus = CheckNodes({}, 8, MustRead(Step()));
  ASSERT_FALSE(gpus.ok());
  EXPECT_THAT(gpus, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(gpus, HasMessage(AllOf(HasSubstr("--gpus-per-node=8"),
                                     HasSubstr("SLURM_STEP_TASKS_PER_NODE=1(x3)"))));
}

TEST(CheckNodes, EveryNodeMustRunThatManyTasks) {
  Variables variables = BatchScript();
  variables = With(variables, "SLURM_TASKS_PER_NODE", "2(x3),1");
  EXPECT_FALSE(CheckNodes({}, 2, MustRead(variables)).ok());
  EXPECT_FALSE(CheckNodes({}, 1, MustRead(variables)).ok());
}

}  // namespace
}  // namespace gaccd
