#include "collectives/bootstrap/world_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/unit/base/status_matchers.h"

namespace gaccd {
namespace {

using ::testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

Environment Env(Variables values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

TEST(CheckWorldTest, AgreesWithTheLauncher) {
  EXPECT_TRUE(CheckWorld(1, Env({})).ok());
  EXPECT_TRUE(CheckWorld(240, Env({{"SLURM_STEP_NUM_TASKS", "240"}})).ok());
  EXPECT_TRUE(CheckWorld(4, Env({{"OMPI_COMM_WORLD_SIZE", "4"}})).ok());
  EXPECT_TRUE(CheckWorld(8, Env({{"SLURM_NTASKS", "8"}})).ok());
}

TEST(CheckWorldTest, AMismatchSaysBothValues) {
  const Status status = CheckWorld(2, Env({{"SLURM_STEP_NUM_TASKS", "8"}}));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(HasSubstr("MPI has 2 ranks but SLURM_STEP_NUM_TASKS=8")));
  const Status mpirun = CheckWorld(3, Env({{"OMPI_COMM_WORLD_SIZE", "4"}}));
  ASSERT_FALSE(mpirun.ok());
  EXPECT_THAT(mpirun, HasMessage(HasSubstr("MPI has 3 ranks but OMPI_COMM_WORLD_SIZE=4")));
}

TEST(CheckWorldTest, AWorldOfOneInALargerJobGetsAHint) {
  for (const char* variable : {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}) {
    const Status status = CheckWorld(1, Env({{variable, "8"}}));
    ASSERT_FALSE(status.ok()) << variable;
    EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
    EXPECT_THAT(status, HasMessage(HasSubstr("MPI has 1 rank but")));
    EXPECT_THAT(status, HasMessage(HasSubstr("srun --mpi=pmix")));
  }
}

TEST(CheckWorldTest, TheAllocationCountsOnlyWhereNothingElseIsKnown) {
  // mpirun -n 2 in an allocation of 8 tasks, and a step of 2 in an allocation of 8.
  EXPECT_TRUE(CheckWorld(2, Env({{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_NTASKS", "8"}})).ok());
  EXPECT_TRUE(CheckWorld(2, Env({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}})).ok());
  EXPECT_FALSE(CheckWorld(2, Env({{"SLURM_NTASKS", "8"}})).ok());
}

TEST(CheckWorldTest, TheStepOfMpirunsDaemonsDoesNotCount) {
  // mpirun -n 4 in a SLURM job of 2 nodes, as the ranks of the second node see it.
  const Environment env = Env({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_TRUE(CheckWorld(4, env).ok());
  EXPECT_FALSE(CheckWorld(1, env).ok());
}

TEST(CheckWorldTest, NonsenseIsRefused) {
  for (const char* value : {"", "four", "0", "-4", "4x", "99999999999999999999"}) {
    const Status status = CheckWorld(4, Env({{"SLURM_STEP_NUM_TASKS", value}}));
    ASSERT_FALSE(status.ok()) << value;
    EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
    EXPECT_THAT(status, HasMessage(HasSubstr(value)));
  }
}

TEST(CheckLauncherTest, AStepWithoutMpiIsRefusedBeforeMpiStarts) {
  const Status status = CheckLauncher(Env({{"SLURM_STEP_NUM_TASKS", "8"}}));
  ASSERT_FALSE(status.ok());
  EXPECT_THAT(status, HasKind(ErrorKind::kConfig));
  EXPECT_THAT(status, HasMessage(HasSubstr("8 tasks")));
  EXPECT_THAT(status, HasMessage(HasSubstr("srun --mpi=pmix")));
  EXPECT_TRUE(CheckLauncher(Env({{"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "3"}})).ok());
  EXPECT_TRUE(CheckLauncher(Env({{"SLURM_STEP_NUM_TASKS", "1"}})).ok());
  EXPECT_TRUE(CheckLauncher(Env({})).ok());
}

TEST(SnapshotTest, LaterChangesAreNotSeen) {
  Variables values = {{"SLURM_NTASKS", "8"}};
  const Environment live = [&](const std::string& name) { return Env(values)(name); };
  const Environment before = SnapshotOfLauncher(live);
  values.emplace("OMPI_COMM_WORLD_SIZE", "1");  // as Open MPI does in MPI_Init
  EXPECT_TRUE(CheckWorld(1, live).ok());
  EXPECT_FALSE(CheckWorld(1, before).ok());
}

}  // namespace
}  // namespace gaccd
