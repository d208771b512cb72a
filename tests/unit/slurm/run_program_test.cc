#include "slurm/run_program.h"

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
              IsError(ErrorKind::kOs, "sleep gave no answer within 0 s"));
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
  EXPECT_THAT(environment(), HasSubstr("SLURM_NODELIST=n[1-4]"));
  ::setenv("SLURM_JOB_ID", "17", 1);
  EXPECT_THAT(environment(), Not(HasSubstr("SLURM_NODELIST")));
  EXPECT_THAT(environment(), HasSubstr("SLURM_CONF=/etc/slurm.conf"));
  EXPECT_THAT(environment(), HasSubstr("PATH="));
  for (const char* name : {"SLURM_NODELIST", "SLURM_CONF", "SLURM_JOB_ID"}) ::unsetenv(name);
}

}  // namespace
}  // namespace gaccd
