// Answers as real SLURM 22.05 gives them.
#include "slurm/job_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gaccd {
namespace {

TEST(JobStates, AreReadFromSqueue) {
  JobStates jobs;
  ParseSqueue(
      "17|17|PENDING|Resources\n20|18_3|RUNNING|None\n19|18_[4-9%2]|PENDING|JobArrayTaskLimit\n"
      "slurm_load_jobs error: x\n21|21|PEND\x1b[2JING|x\n|22|PENDING|x\n"
      "34|34|PENDING|job requeued in held state\n",
      &jobs);
  EXPECT_EQ(jobs["17"].state, "PENDING");
  EXPECT_EQ(jobs["17"].reason, "Resources");
  EXPECT_EQ(jobs["18_3"].state, "RUNNING");
  EXPECT_EQ(jobs["20"].state, "RUNNING");
  EXPECT_EQ(jobs["20"].reason, "");
  EXPECT_FALSE(jobs.contains("21"));
  EXPECT_FALSE(jobs.contains("22"));
  EXPECT_EQ(jobs["34"].reason, "job_requeued_in_held_state");
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
