#include "slurm/commands.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/support/status_matchers.h"

namespace gaccd {

namespace {

TEST(RunProgram, PassesInputAndOutput) {
  const auto done =
      ValueOrThrow(RunProgram({"bash", "-c", "cat; echo \"$1\" >&2; exit 3", "-", "a $(b)"}, "in",
                              std::chrono::seconds(60)));
  EXPECT_EQ(done.exit, 3);
  EXPECT_EQ(done.out, "in");
  EXPECT_EQ(done.err, "a $(b)\n");
  EXPECT_EQ(RunProgram({"bash", "-c", "kill -9 $$"}, "", std::chrono::seconds(60))->exit, 137);
}

TEST(RunProgram, ReportsStartErrorsAndTimeouts) {
  EXPECT_THAT(RunProgram({"no-such-program"}, "", std::chrono::seconds(60)),
              IsError(ErrorKind::kOs, "no-such-program"));
  EXPECT_THAT(RunProgram({"sleep", "1000"}, "", std::chrono::seconds(0)),
              IsError(ErrorKind::kUnavailable, "sleep gave no answer within 0 s"));
}

TEST(RunProgram, DoesNotPassQueryDefaults) {
  for (const char* name : {"SQUEUE_PARTITION", "SACCT_FORMAT", "SINFO_STATES"}) {
    ::setenv(name, "urgent", 1);
    EXPECT_THAT(RunProgram({"env"}, "", std::chrono::seconds(60))->out, Not(HasSubstr(name)));
    ::unsetenv(name);
  }
}

TEST(RunProgram, DoesNotPassJobEnvironment) {
  const auto environment = [] { return RunProgram({"env"}, "", std::chrono::seconds(60))->out; };
  ::setenv("SLURM_NODELIST", "n[1-4]", 1);
  ::setenv("SLURM_CONF", "/etc/slurm.conf", 1);
  ::setenv("SLURM_JWT", "token", 1);
  EXPECT_THAT(environment(), HasSubstr("SLURM_NODELIST=n[1-4]"));
  ::setenv("SLURM_JOB_ID", "17", 1);
  EXPECT_THAT(environment(), Not(HasSubstr("SLURM_NODELIST")));
  EXPECT_THAT(environment(), HasSubstr("SLURM_CONF=/etc/slurm.conf"));
  EXPECT_THAT(environment(), HasSubstr("PATH="));
  EXPECT_THAT(environment(), HasSubstr("SLURM_JWT=token"));
  for (const char* name : {"SLURM_NODELIST", "SLURM_CONF", "SLURM_JWT", "SLURM_JOB_ID"}) {
    ::unsetenv(name);
  }
}

}  // namespace

// Answers as real SLURM 22.05 gives them.

namespace {

TEST(JobStates, AreReadFromSqueue) {
  JobStates jobs;
  ParseSqueue(
      "17|17|PENDING|Resources\n20|18_3|RUNNING|None\n19|18_[4-9%2]|PENDING|JobArrayTaskLimit\n"
      "slurm_load_jobs error: x\n21|21|PEND\x1b[2JING|x\n|22|PENDING|x\n"
      "34|34|PENDING|job requeued in held state\n40|40+0|PENDING|Priority\n",
      &jobs);
  EXPECT_EQ(jobs["17"].state, "PENDING");
  EXPECT_EQ(jobs["17"].reason, "Resources");
  EXPECT_EQ(jobs["18_3"].state, "RUNNING");
  EXPECT_EQ(jobs["20"].state, "RUNNING");
  EXPECT_EQ(jobs["20"].reason, "");
  EXPECT_FALSE(jobs.contains("21"));
  EXPECT_FALSE(jobs.contains("22"));
  EXPECT_EQ(jobs["34"].reason, "job_requeued_in_held_state");
  EXPECT_EQ(jobs["40"].state, "PENDING") << "a component of a heterogeneous job";
}

TEST(JobStates, AreReadFromSacct) {
  JobStates jobs;
  ParseSacct("17|17|CANCELLED by 1000|0:15\n20|18_3|FAILED|78:0\n", &jobs);
  EXPECT_EQ(jobs["17"].state, "CANCELLED");
  EXPECT_EQ(jobs["18_3"].exit, "78:0");
}

TEST(JobStates, RequeuedOrHeldJobIsNotFinal) {
  for (const char* state : {"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED",
                            "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT", "EXPEDITING"}) {
    EXPECT_FALSE(IsFinal(state)) << state;
  }
  for (const char* state : {"CANCELLED", "FAILED", "TIMEOUT", "COMPLETED", "NODE_FAIL"}) {
    EXPECT_TRUE(IsFinal(state)) << state;
  }
}

}  // namespace

}  // namespace gaccd
