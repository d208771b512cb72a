// Which folders are those of runs, and what SLURM adds to their files.
#include "daemon/inspect/watch/slurm_facts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <utility>

#include "daemon/inspect/watch/run_folders.h"
#include "daemon/inspect/watch/run_state.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

TEST(FindRunFolders, FindsRunsInFolderAndSweeps) {
  const TempFolder top;
  for (const char* name : {"a", "sweep/0-lr=1", "sweep/1-lr=2", "a/ckpt", "other/x/y"}) {
    std::filesystem::create_directories(top.Path(name));
  }
  for (const char* name :
       {"a/STATUS.json", "sweep/0-lr=1/submit.jsonl", "sweep/1-lr=2/ledger.jsonl",
        "a/ckpt/STATUS.json", "other/x/y/STATUS.json"}) {
    std::ofstream(top.Path(name)) << "";
  }
  const auto found = ValueOrThrow(FindRunFolders(top.path()));
  EXPECT_THAT(found.folders, testing::ElementsAre(top.Path("a"), top.Path("sweep/0-lr=1"),
                                                  top.Path("sweep/1-lr=2")));
}

// What AddSlurmFacts() makes of a run, where SLURM knows these jobs.
RunState WithSlurm(RunState state, const std::optional<JobStates>& known, int* asked = nullptr) {
  AddSlurmFacts({&state, 1}, [&](std::span<const std::string>) {
    if (asked != nullptr) ++*asked;
    return known;
  });
  return state;
}

TEST(AddSlurmFacts, SetsStateIfFilesAreInconclusive) {
  const TempFolder folder;
  const RunState waits{
      .folder = folder.path(), .phase = RunPhase::kSubmitted, .submitted = "17,18"};
  struct Case {
    const char* what;
    std::optional<JobStates> known;
    const char* phase;
    bool gone;
  };
  const Case cases[] = {
      {"no answer", std::nullopt, "submitted", false},
      {"waits", JobStates{{"17", {"PENDING", "Resources", ""}}}, "submitted", false},
      {"runs", JobStates{{"17", {"RUNNING", "", ""}}}, "starting", false},
      {"the second waits", JobStates{{"17", {"FAILED", "", "1:0"}}, {"18", {"PENDING", "", ""}}},
       "submitted", false},
      {"failed", JobStates{{"17", {"FAILED", "", "1:0"}}, {"18", {"FAILED", "", "78:0"}}}, "failed",
       true},
      {"cancelled", JobStates{{"18", {"CANCELLED", "", ""}}}, "stopped", true},
      {"unknown", JobStates(), "failed", true},
  };
  for (const Case& test : cases) {
    const RunState state = WithSlurm(waits, test.known);
    EXPECT_EQ(Name(state.phase), test.phase) << test.what;
    EXPECT_EQ(state.gone_in_slurm, test.gone) << test.what;
    EXPECT_EQ(StateJson(state).find(R"("gone_in_slurm":true)") != std::string::npos, test.gone)
        << test.what;
  }
  EXPECT_THAT(WithSlurm(waits, cases[1].known).slurm, "job 17 is PENDING (Resources)");
  EXPECT_THAT(WithSlurm(waits, cases[4].known).reason, HasSubstr("job 18 is FAILED (exit 78:0)"));
  // An answer that is older than the files.
  const RunState starts{.job = "17", .phase = RunPhase::kStarting, .no_rank_yet = true};
  EXPECT_EQ(WithSlurm(starts, JobStates{{"17", {"PENDING", "", ""}}}).slurm, "");
  (void)folder.Write("DONE", "");
  EXPECT_EQ(Name(WithSlurm(waits, JobStates{{"18", {"COMPLETED", "", "0:0"}}}).phase), "done");
}

TEST(AddSlurmFacts, RequeueChainEndsWithLastJob) {
  const RunState stopped{
      .job = "17", .phase = RunPhase::kStopped, .submitted = "17,18", .exit = 75};
  const JobState timeout{"TIMEOUT", "", "0:0"};
  const auto has_ended = [](const RunState& state, const JobState& first, const JobState& second) {
    return IsPermanentlyEnded(WithSlurm(state, JobStates{{"17", first}, {"18", second}}));
  };
  EXPECT_FALSE(has_ended(stopped, timeout, {"PENDING", "Dependency", ""}));
  EXPECT_FALSE(has_ended(stopped, timeout, {"RUNNING", "", ""}));
  EXPECT_TRUE(has_ended(stopped, timeout, timeout));
  const RunState stale{.job = "17", .phase = RunPhase::kStale, .submitted = "17,18"};
  EXPECT_FALSE(has_ended(stale, {"NODE_FAIL", "", "1:0"}, {"PENDING", "Dependency", ""}));
  EXPECT_TRUE(has_ended(stale, {"NODE_FAIL", "", "1:0"}, timeout));
  RunState other = stopped;  // its job is not of the newest submission
  other.job = "16";
  EXPECT_TRUE(has_ended(other, timeout, {"PENDING", "", ""}));
  // A task of an array has a job id of its own.
  const RunState task{
      .job = "23", .phase = RunPhase::kStopped, .submitted = "17_0,18_0", .exit = 75};
  for (const char* next : {"PENDING", "TIMEOUT"}) {
    EXPECT_EQ(IsPermanentlyEnded(
                  WithSlurm(task, JobStates{{"23", timeout}, {"17_0", timeout}, {"18_0", {next}}})),
              std::string_view(next) == "TIMEOUT");
  }
}

// With RequeueExitHold=93 in slurm.conf.
TEST(AddSlurmFacts, NamesJobThatIsHeldAfterItsEnd) {
  for (const RunPhase phase : {RunPhase::kStopped, RunPhase::kFailed}) {
    const RunState ended{.job = "17", .phase = phase, .exit = 93, .reason = "diverged"};
    const RunState held = WithSlurm(ended, JobStates{{"17", {"SPECIAL_EXIT", "JobHeldUser", ""}}});
    EXPECT_EQ(held.slurm, "job 17 is SPECIAL_EXIT (JobHeldUser)");
    EXPECT_THAT(StateText(held), HasSubstr("SPECIAL_EXIT"));
    for (const JobStates& known : {JobStates(), JobStates{{"17", {"FAILED", "", "93:0"}}}}) {
      const RunState same = WithSlurm(ended, known);
      EXPECT_EQ(StateText(same), StateText(ended));
      EXPECT_EQ(same.phase, phase);
      EXPECT_TRUE(IsPermanentlyEnded(same));
    }
  }
}

TEST(AddSlurmFacts, QueriesSlurmOnlyIfFilesAreInconclusive) {
  const auto asked = [](RunState state) {
    int times = 0;
    (void)WithSlurm(std::move(state), JobStates(), &times);
    return times == 1;
  };
  EXPECT_TRUE(asked({.job = "17", .phase = RunPhase::kStale}));
  EXPECT_TRUE(asked({.job = "17", .phase = RunPhase::kStopped, .exit = 75}));
  EXPECT_TRUE(asked({.job = "17", .phase = RunPhase::kStopped, .exit = 93}));
  EXPECT_FALSE(asked({.job = "17", .phase = RunPhase::kFailed, .exit = 78}));
  EXPECT_FALSE(asked({.job = "17", .phase = RunPhase::kRunning}));
  EXPECT_FALSE(asked({.job = "17", .phase = RunPhase::kFailed}));
  EXPECT_FALSE(asked({.job = "local-17", .phase = RunPhase::kStale}));
  // A stale run stays stale where SLURM does not know its job: it may be another cluster's.
  const RunState stale{.job = "17", .phase = RunPhase::kStale, .has_status = true};
  EXPECT_EQ(Name(WithSlurm(stale, JobStates()).phase), "stale");
  EXPECT_TRUE(WithSlurm(stale, JobStates()).gone_in_slurm);
  EXPECT_EQ(Name(WithSlurm(stale, JobStates{{"17", {"TIMEOUT", "", ""}}}).phase), "stopped");
}

}  // namespace
}  // namespace gaccd
