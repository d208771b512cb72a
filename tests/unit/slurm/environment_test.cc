#include "slurm/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"
#include "tests/unit/slurm/fake_env.h"

namespace gaccd {
namespace {

TEST(SlurmEnvironment, OutsideAJob) {
  const SlurmEnvironment env = MustRead({});
  EXPECT_FALSE(env.in_job());
  EXPECT_FALSE(env.in_step());
  EXPECT_FALSE(env.nodes.has_value());
}

TEST(SlurmEnvironment, BatchScript) {
  const SlurmEnvironment env = MustRead(BatchScript());
  EXPECT_TRUE(env.in_job());
  EXPECT_FALSE(env.in_step());
  EXPECT_EQ(env.job_id, 3);
  EXPECT_EQ(env.nodes, 4);
  EXPECT_EQ(env.nodelist, "n[1-4]");
  EXPECT_EQ(env.partition, "main");
  EXPECT_EQ(env.tasks_per_node->tasks, 8);
  EXPECT_FALSE(env.procid.has_value());  // the script is not a rank
}

TEST(SlurmEnvironment, StepHasOwnValues) {
  const SlurmEnvironment env = MustRead(Step());
  EXPECT_TRUE(env.in_step());
  EXPECT_EQ(env.step_id, 0);
  EXPECT_EQ(env.procid, 1);
  EXPECT_EQ(env.step_tasks, 3);
  EXPECT_EQ(env.nodes, 3);
  EXPECT_EQ(env.nodes_variable, "SLURM_STEP_NUM_NODES");
  EXPECT_EQ(env.nodelist, "n[1-3]");
  EXPECT_EQ(env.tasks_per_node->tasks, 3);
}

TEST(SlurmEnvironment, IgnoresStepsOfSlurmItself) {
  for (const char* id : {"4294967290", "4294967291", "4294967292", "4294967293"}) {
    Variables variables = Step();
    variables = With(variables, "SLURM_STEP_ID", id);
    const SlurmEnvironment env = MustRead(variables);
    EXPECT_TRUE(env.in_job());
    EXPECT_FALSE(env.in_step()) << id;
    EXPECT_EQ(env.nodes, 4);
  }
}

TEST(SlurmEnvironment, ReadsEndTimeAndAccount) {
  Variables variables = BatchScript();
  variables = With(variables, "SLURM_JOB_END_TIME", "1795149058");
  variables = With(variables, "SLURM_JOB_ACCOUNT", "vision");
  const SlurmEnvironment env = MustRead(variables);
  EXPECT_EQ(env.end_time_s, 1795149058);
  EXPECT_EQ(env.account, "vision");
  const SlurmEnvironment outside = MustRead({{"SLURM_JOB_END_TIME", "1795149058"}});
  EXPECT_FALSE(outside.in_job());
  EXPECT_FALSE(outside.end_time_s.has_value());
}

TEST(SlurmEnvironment, ParsesNumbersStrictly) {
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
                           "SLURM_STEP_NUM_NODES", "SLURM_RESTART_COUNT", "SLURM_JOB_END_TIME",
                           "SLURM_STEP_TASKS_PER_NODE"}) {
    for (const char* value : {"x", "-1", "+1", " 1", "1 ", "1.5", "0x1", "9223372036854775808"}) {
      Variables variables = Step();
      variables = With(variables, name, value);
      EXPECT_THAT(SlurmEnvironment::Read(LookupIn(variables)),
                  IsError(ErrorKind::kConfig, std::string(name) + "=" + value))
          << name << "=" << value;
    }
  }
}

TEST(SlurmEnvironment, RefusesIncompatibleValues) {
  Variables variables = Step();
  variables = With(variables, "SLURM_PROCID", "3");
  EXPECT_THAT(SlurmEnvironment::Read(LookupIn(variables)),
              HasMessage(HasSubstr("SLURM_PROCID=3: expected below SLURM_STEP_NUM_TASKS=3")));
}

TEST(SlurmEnvironment, EmptyCountsAsUnset) {
  Variables variables = BatchScript();
  variables = With(variables, "SLURM_RESTART_COUNT", "");
  EXPECT_EQ(MustRead(variables).restart_count, 0);
}

TEST(TasksPerNode, Parses) {
  const auto tasks = ValueOrThrow(ParseTasksPerNode("8(x30),7,2(x2)"));
  EXPECT_EQ(tasks.min, 2);
  EXPECT_EQ(tasks.max, 8);
  EXPECT_EQ(tasks.tasks, 251);
  EXPECT_EQ(tasks.nodes, 33);
}

TEST(TasksPerNode, Refuses) {
  for (const char* text : {"", ",", "2,", "2(x0)", "2(x3", "2(3)", "(x3)", "2(x3)4", "2(x)", "a",
                           "9223372036854775807(x2)", "9223372036854775807,1"}) {
    EXPECT_FALSE(ParseTasksPerNode(text).ok()) << text;
  }
}

}  // namespace
}  // namespace gaccd
