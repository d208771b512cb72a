#include "collectives/bootstrap/world_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

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

TEST(CheckWorldTest, MismatchNamesBothValues) {
  EXPECT_THAT(CheckWorld(2, Env({{"SLURM_STEP_NUM_TASKS", "8"}})),
              IsError(ErrorKind::kConfig, "MPI has 2 ranks but SLURM_STEP_NUM_TASKS=8"));
  EXPECT_THAT(CheckWorld(3, Env({{"OMPI_COMM_WORLD_SIZE", "4"}})),
              HasMessage(HasSubstr("MPI has 3 ranks but OMPI_COMM_WORLD_SIZE=4")));
}

TEST(CheckWorldTest, WorldOfOneInLargerJobGetsHint) {
  for (const char* variable : {"SLURM_STEP_NUM_TASKS", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS"}) {
    EXPECT_THAT(CheckWorld(1, Env({{variable, "8"}})),
                IsError(ErrorKind::kConfig, "MPI has 1 rank but", "srun --mpi=pmix"))
        << variable;
  }
}

TEST(CheckWorldTest, UsesAllocationOnlyAsLastResort) {
  // mpirun -n 2 in an allocation of 8 tasks, and a step of 2 in an allocation of 8.
  EXPECT_TRUE(CheckWorld(2, Env({{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_NTASKS", "8"}})).ok());
  EXPECT_TRUE(CheckWorld(2, Env({{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_NTASKS", "8"}})).ok());
  EXPECT_FALSE(CheckWorld(2, Env({{"SLURM_NTASKS", "8"}})).ok());
}

TEST(CheckWorldTest, IgnoresStepOfMpirunDaemons) {
  // mpirun -n 4 in a SLURM job of 2 nodes, as the ranks of the second node see it.
  const Environment env = Env({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  EXPECT_TRUE(CheckWorld(4, env).ok());
  EXPECT_FALSE(CheckWorld(1, env).ok());
}

TEST(CheckWorldTest, RefusesInvalidValues) {
  for (const char* value : {"", "four", "0", "-4", "4x", "99999999999999999999"}) {
    EXPECT_THAT(CheckWorld(4, Env({{"SLURM_STEP_NUM_TASKS", value}})),
                IsError(ErrorKind::kConfig, value))
        << value;
  }
}

TEST(CheckLauncherTest, RefusesStepWithoutMpiBeforeMpiStarts) {
  EXPECT_THAT(CheckLauncher(Env({{"SLURM_STEP_NUM_TASKS", "8"}})),
              IsError(ErrorKind::kConfig, "8 tasks", "srun --mpi=pmix"));
  EXPECT_TRUE(CheckLauncher(Env({{"SLURM_STEP_NUM_TASKS", "8"}, {"PMIX_RANK", "3"}})).ok());
  EXPECT_TRUE(CheckLauncher(Env({{"SLURM_STEP_NUM_TASKS", "1"}})).ok());
  EXPECT_TRUE(CheckLauncher(Env({})).ok());
}

TEST(SnapshotTest, IgnoresLaterChanges) {
  Variables values = {{"SLURM_NTASKS", "8"}};
  const Environment live = [&](const std::string& name) { return Env(values)(name); };
  const Environment before = SnapshotLauncher(live);
  values.emplace("OMPI_COMM_WORLD_SIZE", "1");  // as Open MPI does in MPI_Init
  EXPECT_TRUE(CheckWorld(1, live).ok());
  EXPECT_FALSE(CheckWorld(1, before).ok());
}

}  // namespace
}  // namespace gaccd
