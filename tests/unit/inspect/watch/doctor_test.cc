// Run folders of runs that ended in different ways, and what is said of them.
#include "daemon/inspect/watch/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>

#include "daemon/inspect/watch/advice.h"
#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

class DoctorTest : public testing::Test {
 protected:
  void State(std::string_view more) {
    run_.Append("STATUS.json",
                StrCat(R"({"v":1,"ts":")", At(60),
                       R"(","run":"r50","job":"812","attempt_dir":"attempts/001-812",)",
                       R"("host":"n1","world":240)", more, "}"));
  }
  void Verdict(const std::string& attempt, std::string_view hosts) {
    run_.Append(StrCat("attempts/", attempt, "/verdict.json"),
                RunFiles::Line(59, "verdict", 1, StrCat(R"(,"suspect_hosts":")", hosts, "\"")));
  }
  Diagnosis Find() {
    auto found = Diagnose(run_.path(), *ParseTimestamp(At(61)));
    EXPECT_TRUE(found.ok()) << found.status().message();
    return found.ok() ? *found : Diagnosis{};
  }
  std::string Text() { return DiagnosisText(Find()); }

  RunFiles run_;
};

TEST_F(DoctorTest, NamesFirstFailureHostsAndExcludeFlag) {
  State(R"(,"state":"failed","exit":69,"reason":"rank 5 on n3 was lost","suspect_hosts":"n3")");
  run_.Event("000-812", 1, "run_start");
  Verdict("000-812", "n3,n7");
  run_.Event("001-812", 40, "run_start");
  run_.Event("001-812", 45, "log", R"(,"msg":"rank 5 is slow\nforged: line")");
  Verdict("001-812", "n3");
  run_.Crash("001-812", 52, 9, R"(,"exit":69,"lost_ranks":"5","msg":"rank 5 was lost")");
  run_.Crash("001-812", 50, 5, R"(,"signal":11,"step":400,"phase":"reduce","msg":"SIGSEGV")");
  run_.Crash("001-812", 51, 7, R"(,"exit":65,"step":400,"msg":"no data")");
  const Diagnosis found = Find();
  ASSERT_EQ(found.failures.size(), 3);
  EXPECT_EQ(found.failures[0].rank, 5);
  EXPECT_EQ(found.failures[0].what, "signal 11, reduce");
  EXPECT_TRUE(found.failures[2].caused_by_others);
  ASSERT_EQ(found.suspects.size(), 2);
  EXPECT_EQ(found.suspects[0].host, "n3");
  EXPECT_EQ(found.suspects[0].attempts, 2);
  EXPECT_EQ(found.state.suspect_hosts, "n3");
  const std::string text = DiagnosisText(found);
  EXPECT_LT(text.find("rank 5 on n3, after update 400"), text.find("rank 7 on n4"));
  EXPECT_THAT(text, HasSubstr("and 1 rank that exited"));
  EXPECT_THAT(text, HasSubstr("\nsuspects  --exclude=n3\n"));
  EXPECT_THAT(text, HasSubstr("n3, in 2 of 2 attempts"));
  EXPECT_THAT(text, Not(HasSubstr("\nforged")));
  EXPECT_EQ(ExitCode(found.state.phase), 1);
}

// It was killed at the same place twice, so the job is too large: `gaccd verdict` suspects nobody.
TEST_F(DoctorTest, SuspectsSameHostsAsJobScript) {
  State(R"(,"state":"failed","exit":69,"reason":"rank 5 on n3 was lost","suspect_hosts":"n3")");
  run_.Event("000-812", 1, "run_start");
  Verdict("000-812", "n3,n7");
  run_.Event("001-812", 40, "run_start");
  Verdict("001-812", "n3");
  run_.Append("ledger.jsonl",
              R"({"attempt":"000-812","exit":69,"verdict":"requeue","suspect_hosts":"n7"})"
              "\n"
              R"({"attempt":"001-812","exit":69,"verdict":"requeue","reason":"too large"})"
              "\n");
  const Diagnosis found = Find();
  ASSERT_EQ(found.suspects.size(), 1);
  EXPECT_EQ(found.suspects[0].host, "n7");
  EXPECT_EQ(found.state.suspect_hosts, "");
  EXPECT_THAT(DiagnosisText(found), Not(HasSubstr("--exclude")));
}

// A second job in the folder of a live run was refused, and left a folder without events.
TEST_F(DoctorTest, DiagnosesTheAttemptOfTheState) {
  State(R"(,"state":"failed","exit":69,"reason":"rank 5 on n3 was lost","suspect_hosts":"n3")");
  run_.Event("001-812", 40, "run_start");
  run_.Event("001-812", 45, "log", R"(,"msg":"rank 5 is slow")");
  Verdict("001-812", "n3");
  run_.Crash("001-812", 50, 5, R"(,"signal":11,"step":400,"phase":"reduce","msg":"SIGSEGV")");
  run_.Append("attempts/000-813/srun.err", "srun: error: n1: task 0: Exited with exit code 78\n");
  run_.Append("ledger.jsonl", R"({"attempt":"000-813","exit":78,"verdict":"stop"})"
                              "\n");
  EXPECT_THAT(Text(), AllOf(HasSubstr("\nsuspects  --exclude=n3\n"), HasSubstr("rank 5 on n3"),
                            HasSubstr("signal 11"), HasSubstr("rank 5 is slow"),
                            HasSubstr("sbatch --exclude=n3"), Not(HasSubstr("exit code 78"))));
}

// Rank 0 was silent too long and lived: no rank failed by itself, but somebody was the first to see
// it.
TEST_F(DoctorTest, ShowsFirstRecordIfAllOnlyLostPeers) {
  State(R"(,"state":"failed","exit":69,"reason":"a rank was lost")");
  run_.Event("001-812", 1, "run_start");
  for (const int rank : {0, 3, 2, 1}) {
    run_.Crash("001-812", 54 - rank, rank,
               StrCat(R"(,"exit":69,"lost_ranks":"0","msg":"rank )", rank, R"( lost rank 0")"));
  }
  const std::string text = Text();
  EXPECT_THAT(text, HasSubstr("rank 3 lost rank 0"));
  EXPECT_THAT(text, Not(HasSubstr("rank 2 lost rank 0")));
  EXPECT_THAT(text, HasSubstr("and 3 ranks that exited"));
}

// All ranks agree on an error, and each leaves a record of it.
TEST_F(DoctorTest, ReportsErrorOfAllRanksAsOneFailure) {
  State(R"(,"state":"failed","exit":65,"reason":"record 7 is damaged")");
  run_.Event("001-812", 1, "run_start");
  for (int rank = 0; rank < 20; ++rank) {
    run_.Crash("001-812", 50 + rank, rank,
               StrCat(R"(,"exit":)", rank == 19 ? 74 : 65, R"(,"phase":")",
                      rank % 2 == 0 ? "reduce" : "compute", R"(","msg":"record 7 is damaged")"));
  }
  const Diagnosis found = Find();
  ASSERT_EQ(found.failures.size(), 2);
  EXPECT_EQ(found.failures[0].rank, 0);
  EXPECT_EQ(found.failures[0].more_ranks, 18);
  EXPECT_EQ(found.failures[1].what, "exit 74, compute");
  EXPECT_THAT(DiagnosisText(found), HasSubstr("rank 0 on n1 and 18 more ranks, after update"));
}

// What several ranks say of a rank that they lost is one record, of all of them.
TEST_F(DoctorTest, CountsEveryRankThatLostAnother) {
  State(R"(,"state":"failed","exit":69,"reason":"rank 5 on n3 was lost")");
  run_.Event("001-812", 1, "run_start");
  run_.Crash("001-812", 50, 5, R"(,"signal":11,"step":400,"msg":"SIGSEGV")");
  for (const int rank : {0, 1, 2}) {
    run_.Crash("001-812", 52, rank, R"(,"exit":69,"lost_ranks":"5","msg":"rank 5 was lost")");
  }
  EXPECT_THAT(Text(), HasSubstr("and 3 ranks that exited because of others"));
}

TEST_F(DoctorTest, ShowsNewestWarnings) {
  State(R"(,"state":"failed","exit":69,"reason":"a rank was lost")");
  run_.Event("001-812", 1, "run_start");
  for (int i = 0; i < 7; ++i) {
    run_.Event("001-812", 10 + i, "log", StrCat(R"(,"msg":"warning )", i, "\""));
  }
  const Diagnosis found = Find();
  ASSERT_EQ(found.warnings.size(), 5U);
  EXPECT_THAT(found.warnings.front(), HasSubstr("warning 2"));
  EXPECT_THAT(found.warnings.back(), HasSubstr("warning 6"));
}

TEST_F(DoctorTest, InvalidHostNamesNeverReachCommands) {
  State(R"(,"state":"failed","exit":69,"reason":"lost","suspect_hosts":"n3;rm -rf /")");
  run_.Event("001-812", 1, "run_start");
  Verdict("001-812", "n3;rm -rf /");
  EXPECT_EQ(Find().state.suspect_hosts, "");
  EXPECT_THAT(Text(), Not(HasSubstr("rm -rf")));
}

TEST_F(DoctorTest, ReportsSrunErrorsAndFileProblems) {
  State(R"(,"state":"failed","exit":137,"reason":"killed")");
  run_.Event("001-812", 1, "run_start");
  run_.Append("attempts/001-812/srun.err", "srun: error: n2: task 3: Killed\n");
  EXPECT_THAT(Text(), HasSubstr("srun\n  n2: task 3: Killed\n"));
  EXPECT_THAT(Text(), HasSubstr("attempt 000-812 has no folder"));
}

TEST_F(DoctorTest, RefusesRunWithoutAttemptsOrFolder) {
  EXPECT_THAT(Diagnose(run_.path(), WallTime()), HasKind(ErrorKind::kUsage));
  State(R"(,"state":"running")");
  EXPECT_THAT(Diagnose(run_.path(), WallTime()), HasKind(ErrorKind::kUsage));
}

std::string AdviceFor(RunPhase phase, std::optional<int> exit, bool stop = false, bool hold = false,
                      std::string reason = "") {
  RunState state{.folder = "/runs/a b", .host = "n1", .phase = phase};
  state.exit = exit;
  state.reason = std::move(reason);
  state.suspect_hosts = "n3";
  constexpr auto npos = std::string::npos;
  std::string all;
  for (const Advice& one : Advise({.state = state, .stop_file = stop, .hold_file = hold})) {
    all += one.en + "\n";
    EXPECT_NE(one.en, one.zh);
    for (const char* command :
         {"rm '/", "gaccd ckpt ", "gaccd logs ", "sbatch ", "squeue ", "--mem"}) {
      EXPECT_EQ(one.en.find(command) == npos, one.zh.find(command) == npos) << one.en;
    }
  }
  return all;
}

TEST(Advise, DependsOnPhaseExitAndFiles) {
  EXPECT_THAT(AdviceFor(RunPhase::kDone, 0), HasSubstr("complete"));
  EXPECT_THAT(AdviceFor(RunPhase::kRunning, {}), HasSubstr("nothing to do"));
  EXPECT_THAT(AdviceFor(RunPhase::kStale, {}), HasSubstr("host n1"));
  EXPECT_THAT(AdviceFor(RunPhase::kStopped, 69), HasSubstr("restart it"));
  EXPECT_THAT(AdviceFor(RunPhase::kStopped, 69), HasSubstr("sbatch --exclude=n3"));
  EXPECT_THAT(AdviceFor(RunPhase::kStopped, 137), HasSubstr("--mem"));
  EXPECT_THAT(AdviceFor(RunPhase::kStopped, 130),
              AllOf(HasSubstr("restart it to continue"), Not(HasSubstr("--mem"))));
  EXPECT_THAT(AdviceFor(RunPhase::kFailed, 2), HasSubstr("every node has the program"));
  EXPECT_THAT(AdviceFor(RunPhase::kFailed, 253), HasSubstr("--mem"));
  EXPECT_THAT(AdviceFor(RunPhase::kFailed, 65), HasSubstr("gaccd ckpt verify '/runs/a b'"));
  EXPECT_THAT(AdviceFor(RunPhase::kFailed, 70), HasSubstr("bug in gaccd"));
  EXPECT_THAT(AdviceFor(RunPhase::kFailed, 93), HasSubstr("would fail the same way"));
  const std::string stopped = AdviceFor(RunPhase::kStopped, 93, true);
  EXPECT_THAT(stopped, HasSubstr("rm '/runs/a b/STOP'"));
  EXPECT_THAT(stopped, Not(HasSubstr("would fail the same way")));
  EXPECT_THAT(AdviceFor(RunPhase::kFailed, 93, false, true), HasSubstr("rm '/runs/a b/HOLD'"));
}

TEST(Advise, NoSlurmAdviceForLocalJob) {
  RunState state{.folder = "/runs/a", .job = "local-4711", .phase = RunPhase::kStopped};
  state.exit = 69;
  state.suspect_hosts = "n3";
  for (const Advice& one : Advise({.state = state})) {
    EXPECT_THAT(one.en, AllOf(Not(HasSubstr("sbatch")), Not(HasSubstr("slurm/launch"))));
    EXPECT_THAT(one.zh, AllOf(Not(HasSubstr("sbatch")), Not(HasSubstr("slurm/launch"))));
  }
  state.no_rank_yet = true;
  for (const RunPhase phase : {RunPhase::kStarting, RunPhase::kStale}) {
    state.phase = phase;
    const Advice one = Advise({.state = state})[0];
    EXPECT_THAT(one.en, AllOf(HasSubstr("ps -p 4711"), Not(HasSubstr("squeue"))));
    EXPECT_THAT(one.zh, AllOf(HasSubstr("ps -p 4711"), Not(HasSubstr("squeue"))));
  }
}

TEST_F(DoctorTest, SaysWhereTheNextStartBegins) {
  for (const char* const exit : {"69", "74", "75", "130", "137"}) {
    State(StrCat(R"(,"state":"stopped","exit":)", exit,
                 R"(,"reason":"cannot write: No space left on device")"));
    run_.Event("001-812", 1, "run_start");
    EXPECT_THAT(Text(), HasSubstr("it begins at update 1, as no checkpoint is complete")) << exit;
    run_.Append("ckpt/step-000000000007-e000001/shard-00000-of-00001.bin", "unfinished");
    EXPECT_THAT(Text(), HasSubstr("it begins at update 1")) << exit;
    run_.Append("ckpt/step-000000000005-e000001/MANIFEST", "x");
    EXPECT_THAT(Text(), HasSubstr("it resumes from its newest checkpoint")) << exit;
    std::filesystem::remove_all(run_.path());
  }
}

TEST(Advise, PromisesNoRestartThatDoesNotCome) {
  RunState state{.folder = "/runs/a", .job = "812", .phase = RunPhase::kStopped};
  state.exit = 75;
  EXPECT_THAT(Advise({.state = state})[0].en, HasSubstr("slurm/launch does so automatically"));
  EXPECT_THAT(Advise({.state = state, .hold_file = true})[1].en, Not(HasSubstr("automatically")));
  state.exit = 137;
  EXPECT_THAT(
      Advise({.state = state})[0].en,
      AllOf(HasSubstr("killed by a signal"), HasSubstr("slurm/launch does so automatically")));
  state.exit = 75;
  state.gone_in_slurm = true;  // scancel
  EXPECT_THAT(Advise({.state = state})[0].en,
              AllOf(HasSubstr("submit it again, unless another job that continues it waits"),
                    Not(HasSubstr("automatically"))));
}

TEST(Advise, DependsOnReasonIfExitCodeIsAmbiguous) {
  const auto failed = [](int exit, const char* reason) {
    return AdviceFor(RunPhase::kFailed, exit, false, false, reason);
  };
  EXPECT_THAT(failed(74, "cannot open '/d/x.npy': No such file or directory"),
              AllOf(HasSubstr("correct its path"), Not(HasSubstr("free space"))));
  EXPECT_THAT(failed(74, "cannot open '/d/x.npy': Permission denied"), HasSubstr("permissions"));
  EXPECT_THAT(failed(74,
                     "'/r/ckpt' has 3 checkpoints, none can be used, and one that cannot be "
                     "read may be intact: step-7: '/r' belongs to user 7, expected user 0"),
              AllOf(HasSubstr("fix the owner"), Not(HasSubstr("another run folder"))));
  EXPECT_THAT(failed(74, "cannot write '/d/x': No space left on device"), HasSubstr("free space"));
  EXPECT_THAT(failed(78, "no memory for activations: wanted 9 bytes, 3 are free"),
              HasSubstr("--mem"));
  EXPECT_THAT(failed(65, "'/r/ckpt' has 3 checkpoints and none is intact; --resume=never"),
              AllOf(HasSubstr("another run folder"), Not(HasSubstr("repair the file"))));
  EXPECT_THAT(failed(78, "rank 0 on n1: r/ckpt/step-7: the checkpoint was written by gaccd 9"),
              AllOf(HasSubstr("the version of gaccd that wrote"), Not(HasSubstr("job file"))));
  EXPECT_THAT(failed(69,
                     "all-reduce #57 ended after 42 s (bound 60 s): rank 1 on n2 did not enter "
                     "all-reduce #57"),
              AllOf(HasSubstr("restart it"), HasSubstr("--bound"), HasSubstr("--micro-batch")));
  EXPECT_THAT(failed(69, "rank 1 on n2 was lost"), Not(HasSubstr("--bound")));
  // After `rm STOP`, as the advice was.
  const std::string stopped =
      AdviceFor(RunPhase::kStopped, 93, false, false, "stopped by the file STOP after update 7");
  EXPECT_THAT(stopped, HasSubstr("restart it"));
  EXPECT_THAT(stopped, Not(HasSubstr("would fail the same way")));
}

TEST(Advise, NamesCommandForJobThatSlurmDoesNotRun) {
  const auto advice = [](RunPhase phase, const char* slurm) {
    RunState state{.folder = "r", .job = "17", .phase = phase, .slurm = slurm};
    if (phase == RunPhase::kStopped) state.exit = 75;
    return Advise({.state = state})[0].en;
  };
  EXPECT_EQ(
      advice(RunPhase::kStale, "job 17 is SUSPENDED"),
      "SLURM waits for a command: job 17 is SUSPENDED; to continue: scontrol resume 17; to end "
      "it: scancel 17");
  for (const char* slurm : {"job 17_3 is PENDING (JobHeldUser)", "job 17_3 is SPECIAL_EXIT",
                            "job 17_3 is PENDING (launch_failed_requeued_held)"}) {
    EXPECT_THAT(advice(RunPhase::kStopped, slurm), HasSubstr("scontrol release 17_3"));
    EXPECT_THAT(advice(RunPhase::kSubmitted, slurm), HasSubstr("scontrol release 17_3"));
  }
  EXPECT_THAT(advice(RunPhase::kStopped, "job 17 is PENDING (BeginTime)"),
              HasSubstr("slurm/launch does so automatically"));
}

TEST(Advise, NamesCommandForJobThatIsHeldAfter93) {
  RunState state{.folder = "r", .job = "17", .phase = RunPhase::kFailed};
  state.exit = 93;
  state.slurm = "job 17 is SPECIAL_EXIT (JobHeldUser)";
  const std::vector<Advice> failed = Advise({.state = state});
  ASSERT_EQ(failed.size(), 2U);
  EXPECT_THAT(failed[0].en, HasSubstr("fix the cause"));
  EXPECT_THAT(failed[1].en, HasSubstr("scontrol release 17; to end it: scancel 17"));
  state.phase = RunPhase::kStopped;
  const std::vector<Advice> stopped = Advise({.state = state, .stop_file = true});
  ASSERT_EQ(stopped.size(), 2U);
  EXPECT_THAT(stopped[0].en, HasSubstr("rm r/STOP"));
  EXPECT_THAT(stopped[1].en, HasSubstr("scontrol release 17"));
}

TEST(Advise, NamesReadOnlyDiskOfRunThatEnded) {
  RunState state{.folder = "r", .phase = RunPhase::kRunning};
  EXPECT_THAT(Advise({.state = state, .disk_read_only = true})[0].en, HasSubstr("nothing to do"));
  state.phase = RunPhase::kFailed;
  EXPECT_THAT(Advise({.state = state, .disk_read_only = true})[0].en, HasSubstr("read-only"));
}

TEST(Advise, ReportsFullDiskFirst) {
  RunState state{.folder = "r", .phase = RunPhase::kRunning};
  EXPECT_THAT(Advise({.state = state, .disk_full = true})[0].en,
              HasSubstr("the disk of r is full"));
  EXPECT_THAT(Advise({.state = state, .disk_full = true})[1].en, Not(HasSubstr("nothing to do")));
  state.failed_writes = 3;
  EXPECT_THAT(Advise({.state = state})[0].en, HasSubstr("3 writes failed"));
}

TEST_F(DoctorTest, DiagnosesJobWithoutFilesOfRanks) {
  run_.Append("submit.jsonl", StrCat(R"({"v":1,"ts":")", At(1), R"(","jobs":"812"})", "\n"));
  EXPECT_THAT(Text(), HasSubstr("squeue --jobs=812"));
  auto found =
      ValueOrThrow(Diagnose(run_.path(), *ParseTimestamp(At(61)), [](std::span<const std::string>) {
        return std::optional(JobStates{{"812", {"FAILED", "", "78:0"}}});
      }));
  EXPECT_THAT(DiagnosisText(found),
              AllOf(HasSubstr("FAILED (exit 78:0)"), HasSubstr("slurm-*.out")));
  run_.Append("attempts/000-812/srun.err", "srun: error: n2: task 3: No such file\n");
  run_.Append("ledger.jsonl",
              StrCat(R"({"attempt":"000-812","end_ts":")", At(9),
                     R"(","exit":127,"verdict":"fail","reason":"no gaccd"})", "\n"));
  EXPECT_EQ(Name(Find().state.phase), "failed");
  EXPECT_THAT(Text(), AllOf(HasSubstr("no gaccd"), HasSubstr("n2: task 3: No such file")));
}

TEST(Advise, WarnsIfRunIsStuckOrCannotSave) {
  RunState state{.folder = "r", .phase = RunPhase::kRunning};
  state.step_age_s = 61;
  const auto advice = [&] {
    const std::vector<Advice> all = Advise({.state = state});
    return all.size() == 1 ? all[0].en : StrCat(all.size(), " sentences");
  };
  EXPECT_THAT(advice(), HasSubstr("gaccd logs --follow r"));
  state.dur_p50_s = 30;  // its updates are long
  EXPECT_THAT(advice(), HasSubstr("nothing to do"));
  state.failed_saves = 1;
  EXPECT_THAT(advice(), HasSubstr("free space"));
}

TEST(Advise, NamesAStartThatTakesLong) {
  const RunState state{.folder = "r", .phase = RunPhase::kStarting, .has_status = true};
  EXPECT_THAT(Advise({.state = state, .attempt_age_s = 299})[0].en, HasSubstr("nothing to do"));
  const Advice late = Advise({.state = state, .attempt_age_s = 3600})[0];
  EXPECT_THAT(late.en, AllOf(HasSubstr("began 1:00:00 ago"), HasSubstr("gaccd logs --follow r")));
  EXPECT_THAT(late.zh, HasSubstr("gaccd logs --follow r"));
}

TEST_F(DoctorTest, NamesAStartThatTakesLong) {
  run_.Append("STATUS.json",
              StrCat(R"({"v":1,"ts":")", At(600), R"(","job":"812","attempt_dir":)",
                     R"("attempts/001-812","host":"n1","world":4,"state":"starting"})"));
  run_.Event("001-812", 10, "starting");
  const auto found = ValueOrThrow(Diagnose(run_.path(), *ParseTimestamp(At(610))));
  EXPECT_THAT(DiagnosisText(found), HasSubstr("it began 10:00 ago and has made no update"));
}

TEST(ShellWord, QuotesToOneWord) {
  EXPECT_EQ(ShellWord("/runs/a-1.2"), "/runs/a-1.2");
  EXPECT_EQ(ShellWord("a b"), "'a b'");
  EXPECT_EQ(ShellWord("$(rm x)"), "'$(rm x)'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
  EXPECT_EQ(ShellWord("a\nb'\\"), "$'a\\x0ab\\'\\x5c'");
  EXPECT_EQ(ShellWord(""), "''");
}

}  // namespace
}  // namespace gaccd
