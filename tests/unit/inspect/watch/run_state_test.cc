// STATUS.json and ledger.jsonl as files, then what `gaccd status` makes of them.
#include "daemon/inspect/watch/run_state.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/watch/run_folders.h"
#include "daemon/inspect/watch/watch_command.h"
#include "daemon/rundir/ledger.h"
#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temp_folder.h"

namespace gaccd {
namespace {

constexpr std::string_view kWritten = "2026-11-20T03:04:05.123456Z";

WallTime After(double seconds) {
  return *ParseTimestamp(kWritten) +
         std::chrono::duration_cast<WallTime::duration>(std::chrono::duration<double>(seconds));
}

// `more`: further keys, each after a comma.
std::string ReadRunStatus(std::string_view state, std::string_view more) {
  return StrCat(R"({"v":1,"ts":")", kWritten, R"(","run":"r50","job":"812","attempt":1,)",
                R"("attempt_dir":"attempts/001-812","host":"n1","world":240,"state":")", state,
                "\"", more, "}");
}

class RunStateTest : public testing::Test {
 protected:
  RunState Read(const std::string& status, double age_s) {
    EXPECT_TRUE(ReplaceFile(folder_.path() + "/STATUS.json", status, false).ok());
    auto state = ReadRunState(folder_.path(), After(age_s));
    EXPECT_TRUE(state.ok()) << state.status().message();
    return state.ok() ? *state : RunState{};
  }
  void Submit(const char* at, const char* jobs) const {
    ASSERT_TRUE(AppendSubmission(folder_.path(), {at, jobs}, 0600).ok());
  }
  void Ledger(const LedgerEntry& entry) const {
    ASSERT_TRUE(AppendToLedger(folder_.path() + "/ledger.jsonl", entry).ok());
  }
  TempFolder folder_;
};

TEST_F(RunStateTest, RefusesStatusOfNewerVersion) {
  std::string text = ReadRunStatus("running", "");
  text.replace(text.find(":1,"), 3, ":3,");
  ASSERT_TRUE(ReplaceFile(folder_.path() + "/STATUS.json", text, false).ok());
  EXPECT_THAT(ReadRunState(folder_.path(), After(0)),
              IsError(ErrorKind::kConfig, "STATUS.json' was written by a newer gaccd",
                      "expected version <= 1, found 3"));
}

TEST(ParseTimestamp, AcceptsOnlyTimestampFormat) {
  const auto at = ParseTimestamp(kWritten);
  ASSERT_TRUE(at.has_value());
  EXPECT_EQ(at->time_since_epoch(), std::chrono::microseconds(1'795'143'845'123'456));
  for (const char* wrong :
       {"", "2026-11-20", "2026-11-20T03:04:05.123456", "x", "2026-11-20T03:04:05.1Z9",
        "4052-11-20T03:04:05.123456Z", "1969-11-20T03:04:05.123456Z"}) {
    EXPECT_FALSE(ParseTimestamp(wrong).has_value()) << wrong;
  }
}

// Rank 0 was killed: its guard has written the verdict, and STATUS.json is what rank 0 left.
TEST_F(RunStateTest, VerdictOverridesStatus) {
  ASSERT_TRUE(MakeFolders(folder_.path() + "/attempts/001-812").ok());
  const std::string path = folder_.path() + "/attempts/001-812/verdict.json";
  ASSERT_TRUE(ReplaceFile(path,
                          StrCat(R"({"v":1,"ts":")", kWritten,
                                 R"(","run":"r50","job":"812","attempt":1,"rank":0,"host":"n1",)",
                                 R"("ev":"verdict","lvl":"info","seq":1,"verdict":"requeue",)",
                                 R"("exit":69,"reason":"mpirun has ended","last_step":21,)",
                                 R"("samples_total":210})", "\n"),
                          false)
                  .ok());
  const RunState state = Read(ReadRunStatus("running", R"(,"step":20,"samples_total":200)"), 2);
  EXPECT_EQ(state.phase, RunPhase::kStopped);
  EXPECT_EQ(state.exit, 69);
  EXPECT_EQ(state.reason, "mpirun has ended");
  EXPECT_EQ(state.step, 21);
  EXPECT_EQ(state.samples_total, 210);
  // What STATUS.json says of the end stays.
  EXPECT_EQ(Read(ReadRunStatus("done", R"(,"exit":0)"), 2).phase, RunPhase::kDone);
}

TEST_F(RunStateTest, PhaseDependsOnStateAgeAndExit) {
  struct Case {
    const char* state;
    const char* more;
    double age_s;
    RunPhase phase;
  };
  const Case cases[] = {
      {"starting", "", 1, RunPhase::kStarting},
      {"running", "", 29, RunPhase::kRunning},
      {"running", "", 31, RunPhase::kStale},
      {"starting", "", 31, RunPhase::kStale},
      {"done", R"(,"exit":0)", 1e6, RunPhase::kDone},
      {"failed", R"(,"exit":75)", 1e6, RunPhase::kStopped},
      {"failed", R"(,"exit":137)", 1, RunPhase::kStopped},
      {"failed", R"(,"exit":130)", 1, RunPhase::kStopped},
      {"failed", R"(,"exit":93)", 1, RunPhase::kFailed},
      {"failed", R"(,"exit":70)", 1, RunPhase::kFailed},
  };
  for (const Case& test : cases) {
    const RunState state = Read(ReadRunStatus(test.state, test.more), test.age_s);
    EXPECT_EQ(Name(state.phase), Name(test.phase)) << test.state << test.more << " " << test.age_s;
  }
}

TEST_F(RunStateTest, ClockAheadMayMakeRunStale) {
  EXPECT_THAT(StateText(Read(ReadRunStatus("running", ""), 31)),
              HasSubstr("or the clocks of the two machines differ"));
}

TEST_F(RunStateTest, LostLinesAreOfEventsAndLogs) {
  EXPECT_THAT(StateText(Read(ReadRunStatus("running", R"(,"dropped_lines":1120)"), 2)),
              HasSubstr("1120 lines of events and logs were lost"));
}

TEST_F(RunStateTest, ClockBehindGivesNoNegativeAge) {
  EXPECT_EQ(Read(ReadRunStatus("running", ""), -100).age_s, 0);
}

// As after a crash: the clock of rank 0 is 100 s ahead, and it wrote nothing for 40 s.
TEST_F(RunStateTest, ClockBehindDoesNotHideThatRunIsStale) {
  const std::string path = folder_.path() + "/STATUS.json";
  ASSERT_TRUE(ReplaceFile(path, ReadRunStatus("running", ""), false).ok());
  std::filesystem::last_write_time(path, std::chrono::file_clock::from_sys(After(-140)));
  const RunState state = ValueOrThrow(ReadRunState(folder_.path(), After(-100)));
  EXPECT_EQ(Name(state.phase), "stale");
  EXPECT_NEAR(state.age_s, 40, 1);
}

TEST_F(RunStateTest, LedgerGivesEndOfAttemptWithoutVerdict) {
  Ledger({.attempt = "001-812",
          .exit = 137,
          .next = NextStep::kRequeue,
          .reason = "node n1 was lost"});
  RunState state = Read(ReadRunStatus("running", ""), 60);
  EXPECT_EQ(Name(state.phase), "stopped");
  EXPECT_EQ(state.reason, "node n1 was lost");
  // That of an older attempt says nothing about this one.
  ASSERT_TRUE(AppendToLedger(folder_.path() + "/ledger.jsonl",
                             LedgerEntry{.attempt = "000-812", .exit = 75})
                  .ok());
  state = Read(ReadRunStatus("running", ""), 60);
  EXPECT_EQ(Name(state.phase), "stale");
}

TEST_F(RunStateTest, JobScriptDecidesEndOfAttempt) {
  const std::string lost =
      ReadRunStatus("failed", R"(,"exit":69,"reason":"rank 5 was lost","suspect_hosts":"n3")");
  Ledger({.attempt = "001-812", .exit = 253, .next = NextStep::kFail, .reason = "more --mem"});
  RunState state = Read(lost, 1);
  EXPECT_EQ(Name(state.phase), "failed");
  EXPECT_EQ(state.exit, 253);
  EXPECT_EQ(state.reason, "more --mem");
  EXPECT_EQ(state.suspect_hosts, "");
  Ledger({.attempt = "001-812",
          .exit = 69,
          .next = NextStep::kRequeue,
          .reason = "rank 5 was lost",
          .suspect_hosts = "n3.site"});
  state = Read(lost, 1);
  EXPECT_EQ(Name(state.phase), "stopped");
  EXPECT_EQ(state.suspect_hosts, "n3.site");
  (void)folder_.Write("HOLD", "requeued 20 times already");
  EXPECT_EQ(Name(Read(lost, 1).phase), "failed");
  std::filesystem::remove(folder_.Path("HOLD"));
  Ledger({.attempt = "001-812",
          .exit = 75,
          .next = NextStep::kNoRequeue,
          .reason = "held: 3 restarts in a row brought no new checkpoint; the last: SIGTERM"});
  state = Read(ReadRunStatus("failed", R"(,"exit":75,"reason":"SIGTERM")"), 1);
  EXPECT_EQ(Name(state.phase), "failed") << "it is not requeued";
  EXPECT_THAT(state.reason, StartsWith("held: "));
}

TEST_F(RunStateTest, ShowsSubmissionUntilStart) {
  const auto submit = [&](const char* at, const char* jobs) {
    ASSERT_TRUE(AppendSubmission(folder_.path(), {at, jobs}, 0600).ok());
  };
  submit("2026-11-20T03:04:00.000000Z", "811");
  auto state = ValueOrThrow(ReadRunState(folder_.path(), After(0)));
  EXPECT_EQ(Name(state.phase), "submitted");
  EXPECT_EQ(ExitCode(state.phase), 0);
  EXPECT_THAT(StateText(state), HasSubstr("job 811, 0:05 ago"));
  EXPECT_THAT(RunsTable(std::vector<RunState>{state}), HasSubstr("submitted"));
  // The run has begun since; then it ended, and was submitted again.
  EXPECT_EQ(Name(Read(ReadRunStatus("running", ""), 1).phase), "running");
  EXPECT_EQ(Name(Read(ReadRunStatus("failed", R"(,"exit":70)"), 1).phase), "failed");
  submit("2026-11-20T03:04:06.000000Z", "813,814");
  EXPECT_EQ(Name(Read(ReadRunStatus("failed", R"(,"exit":70)"), 3).phase), "submitted");
  EXPECT_EQ(Name(Read(ReadRunStatus("running", ""), 3).phase), "running");
  EXPECT_THAT(StateJson(Read(ReadRunStatus("running", ""), 3)),
              HasSubstr(R"("submitted_jobs":"813,814")"));
  EXPECT_EQ(Name(Read(ReadRunStatus("running", ""), 1000).phase), "submitted");
}

TEST_F(RunStateTest, JobWithoutFilesOfRanksHasEnded) {
  Submit("2026-11-20T03:04:00.000000Z", "811");
  Ledger({.attempt = "000-811", .ended = At(4 * 60 + 5), .exit = 127, .reason = "no program"});
  RunState state = *ReadRunState(folder_.path(), After(0));
  EXPECT_EQ(Name(state.phase), "failed");
  EXPECT_EQ(state.exit, 127);
  EXPECT_EQ(state.reason, "no program");
  EXPECT_EQ(state.job, "811");
  EXPECT_THAT(StateText(state), Not(HasSubstr("has not begun")));
  // Submitted again, it waits again.
  Submit("2026-11-20T03:04:10.000000Z", "812");
  state = *ReadRunState(folder_.path(), After(10));
  EXPECT_EQ(Name(state.phase), "submitted");
  // Without gaccd submit the ledger alone makes it a run folder.
  std::filesystem::remove(folder_.Path("submit.jsonl"));
  EXPECT_EQ(Name(ReadRunState(folder_.path(), After(10))->phase), "failed");
}

TEST_F(RunStateTest, ResubmittedCompleteRunIsDone) {
  const std::string done = ReadRunStatus("done", R"(,"exit":0,"step":500)");
  Submit("2026-11-20T03:05:00.000000Z", "813");
  EXPECT_EQ(Name(Read(done, 100).phase), "submitted");
  Ledger({.attempt = "000-813", .ended = At(5 * 60 + 9), .exit = 0, .next = NextStep::kDone});
  const RunState state = Read(done, 100);
  EXPECT_EQ(Name(state.phase), "done");
  EXPECT_EQ(state.step, 500);
}

TEST_F(RunStateTest, AttemptWithoutFilesIsStarting) {
  Submit("2026-11-20T03:04:00.000000Z", "811");
  const std::string attempt = folder_.Path("attempts/000-811");
  std::filesystem::create_directories(attempt);
  const auto began = std::chrono::file_clock::from_sys(After(0));
  std::filesystem::last_write_time(attempt, began);
  RunState state = *ReadRunState(folder_.path(), After(20));
  EXPECT_EQ(Name(state.phase), "starting");
  EXPECT_EQ(state.attempt, "000-811");
  EXPECT_THAT(StateText(state), HasSubstr("job 811 began 0:20 ago"));
  state = *ReadRunState(folder_.path(), After(400));
  EXPECT_EQ(Name(state.phase), "stale");
  EXPECT_EQ(ExitCode(state.phase), 1);
  // Its line in the ledger ends it.
  Ledger({.attempt = "000-811", .ended = At(5 * 60), .exit = 78});
  EXPECT_EQ(Name(ReadRunState(folder_.path(), After(400))->phase), "failed");
}

TEST_F(RunStateTest, RunStoppedByFileStaysStopped) {
  const std::string stopped = ReadRunStatus(
      "failed", R"(,"exit":93,"step":500,"reason":"stopped by the file STOP after update )"
                R"(500, saved")");
  EXPECT_EQ(Name(Read(stopped, 1).phase), "stopped");
  EXPECT_EQ(Name(Read(ReadRunStatus("failed", R"(,"exit":93,"reason":"diverged")"), 1).phase),
            "failed");
  // A start that was refused for the file changes neither that nor the progress.
  Ledger({.attempt = "000-900",
          .ended = At(10 * 60),
          .exit = 93,
          .next = NextStep::kNoRequeue,
          .reason = "rank 0 left no verdict; srun returned 93; the file STOP exists"});
  const RunState state = Read(stopped, 600);
  EXPECT_EQ(Name(state.phase), "stopped");
  EXPECT_EQ(state.step, 500);
}

TEST_F(RunStateTest, LedgerLineDoesNotEndLiveRun) {
  Ledger({.attempt = "000-900", .ended = At(4 * 60 + 9), .exit = 78, .reason = "it lives"});
  EXPECT_EQ(Name(Read(ReadRunStatus("running", ""), 10).phase), "running");
}

TEST_F(RunStateTest, DistinguishesUnreadableFolderFromMissing) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs another user";
  (void)Read(ReadRunStatus("running", ""), 1);
  std::filesystem::permissions(folder_.path(), std::filesystem::perms::owner_all);
  ASSERT_EQ(::seteuid(65534), 0);
  const auto state = ReadRunState(folder_.path(), After(1));
  const auto attempts = ListAttempts(folder_.path());
  const auto runs = FindRunFolders(std::filesystem::path(folder_.path()).parent_path());
  ASSERT_EQ(::seteuid(0), 0);
  EXPECT_THAT(state, IsError(ErrorKind::kIo, "Permission denied"));
  EXPECT_THAT(attempts, IsError(ErrorKind::kIo, "Permission denied"));
  ASSERT_TRUE(runs.ok());
  EXPECT_THAT(runs->unreadable, testing::Contains(folder_.path()));
}

TEST_F(RunStateTest, FolderWithoutAttemptHasNotBegun) {
  ASSERT_TRUE(MakeFolders(folder_.Path("attempts")).ok());
  EXPECT_THAT(ReadRunState(folder_.path(), After(1)),
              IsError(ErrorKind::kUsage, "has no attempts yet"));
}

TEST_F(RunStateTest, SkipsLinesThatAreNoSubmission) {
  (void)folder_.Write("submit.jsonl",
                      "{\"v\":1,\"ts\":\"2026-11-20T03:04:00.000000Z\",\"jobs\":\"7\"}\n"
                      "{\"ts\":\"2026-11-20T03:04:01.000000Z\",\"jobs\":\"8;reboot\"}\n"
                      "{\"ts\":1,\"jobs\":\"9\"}\n{\"ts\":\"2026");
  const auto newest = NewestSubmission(folder_.path());
  ASSERT_TRUE(newest.has_value());
  EXPECT_EQ(newest->jobs, "7");
  ASSERT_OK(AppendSubmission(folder_.path(), {"2026-11-20T03:05:00.000000Z", "11"}, 0600));
  EXPECT_EQ(NewestSubmission(folder_.path())->jobs, "11") << "not part of the truncated line";
}

TEST_F(RunStateTest, EscapesTexts) {
  const RunState state =
      Read(ReadRunStatus("failed", R"(,"exit":65,"reason":"a\u001b[2J\nrun forged")"), 1);
  EXPECT_THAT(StateText(state), Not(HasSubstr("\x1b")));
  EXPECT_THAT(StateText(state), Not(HasSubstr("\nrun forged")));
}

TEST_F(RunStateTest, RefusesInvalidStates) {
  EXPECT_THAT(ReadRunState(folder_.path(), After(0)), HasKind(ErrorKind::kUsage));
  for (const char* text : {"", "{", "[]", R"({"state":3})", R"({"v":1})"}) {
    ASSERT_TRUE(ReplaceFile(folder_.path() + "/STATUS.json", text, false).ok());
    EXPECT_THAT(ReadRunState(folder_.path(), After(0)), HasKind(ErrorKind::kData)) << text;
  }
}

TEST_F(RunStateTest, InvalidIntegersAreUnknown) {
  for (const char* wrong : {"1e300", "12.5", "18446744073709551615", "\"12\"", "null"}) {
    const RunState state =
        Read(ReadRunStatus("running", StrCat(R"(,"step":)", wrong, R"(,"save_step":)", wrong)), 1);
    EXPECT_EQ(state.step, 0) << wrong;
    EXPECT_EQ(state.save_step, std::nullopt) << wrong;
  }
  EXPECT_EQ(Read(ReadRunStatus("running", R"(,"exit":4294967296)"), 1).exit, std::nullopt);
  EXPECT_EQ(Read(ReadRunStatus("running", R"(,"step":12)"), 1).step, 12);
}

TEST_F(RunStateTest, TextAndJsonShowFigures) {
  const RunState state = Read(
      ReadRunStatus("running",
                    R"(,"epoch":2,"step":30,"steps_total":120,"samples_total":92160,"loss":1.5,)"
                    R"("wall_samples_per_s":36480.5,"dur_p50_s":0.0842,"eta_s":94,)"
                    R"("eval_step":25,"eval_loss":0.5,"eval_accuracy":null,"eval_top_5":0.75,)"
                    R"("best_metric":"accuracy","best_value":0.875,"best_step":20,)"
                    R"("save_step":20,"save_ts":"2026-11-20T03:04:00.000000Z")"),
      2);
  const std::string text = StateText(state);
  for (const char* part :
       {"r50, job 812, attempt 001-812", "running, STATUS.json was written 0:02 ago",
        "epoch 2, update 30 of 120 (25 %), 92160 samples",
        "36.5k samples/s, 0.0842 s an update (median), 1:34 left", "update 20, 0:07 ago",
        "eval      loss 0.5, accuracy nan, top_5 0.75 @ 25", "best      accuracy 0.875 @ 20"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  const std::string json = StateJson(state);
  EXPECT_THAT(json, HasSubstr(R"("phase":"running")"));
  EXPECT_THAT(json, HasSubstr(R"("save_step":20)"));
  EXPECT_THAT(json, HasSubstr(R"("eval_step":25,"eval_loss":0.5,"eval_accuracy":null,)"
                              R"("eval_top_5":0.75,"best_metric":"accuracy")"));
  EXPECT_THAT(json, Not(HasSubstr("exit")));
  EXPECT_THAT(RunsTable(std::vector<RunState>{state}), HasSubstr("30/120"));
}

TEST_F(RunStateTest, TextAndJsonShowNewestLoads) {
  const RunState begin = Read(ReadRunStatus("running", R"(,"loads":"192x13,48x12")"), 2);
  EXPECT_THAT(StateText(begin),
              HasSubstr("loads     192x13,48x12 (ranks x samples of an update)\n"));
  const RunState changed =
      Read(ReadRunStatus("running", R"(,"loads":"160x15,80x9","loads_step":25)"), 2);
  EXPECT_THAT(StateText(changed), HasSubstr("160x15,80x9 (ranks x samples of an update), since "
                                            "update 25\n"));
  EXPECT_THAT(StateJson(changed), HasSubstr(R"("loads":"160x15,80x9","loads_step":25)"));
}

// STATUS.json is that of the newest attempt; one that was refused before its first update has done
// nothing itself.
TEST(RefusedAttempt, KeepsProgressOfPreviousAttempts) {
  RunFiles run;
  const auto update = [](int step) {
    return StrCat(R"(,"epoch":2,"step":)", step, R"(,"steps_total":120,"samples":32,"target":32,)",
                  R"("samples_total":)", 32 * step, R"(,"loss":1.5)");
  };
  run.Event("000-811", 1, "step", update(39));
  run.Event("000-811", 2, "step", update(40));
  run.Event("000-811", 3, "eval",
            R"(,"step":36,"metric":"mae","value":0.25,"best_step":36,"best_value":0.25)");
  run.Event("000-811", 3, "eval", R"(,"step":40,"metric":"loss","value":2)");
  run.Event("000-811", 3, "eval",
            R"(,"step":40,"metric":"mae","value":0.5,"best_step":36,"best_value":0.25)");
  run.Event("000-811", 4, "verdict", R"(,"verdict":"requeue","exit":75,"last_step":40)");
  run.Event("001-812", 9, "verdict", R"(,"verdict":"fail","exit":78,"last_step":0)");
  run.Append("STATUS.json", ReadRunStatus("failed", R"(,"exit":78,"reason":"another model")"));
  const auto state = ValueOrThrow(ReadRunState(run.path(), After(1)));
  EXPECT_EQ(Name(state.phase), "failed");
  EXPECT_EQ(state.attempt, "001-812");
  EXPECT_EQ(state.reason, "another model");
  EXPECT_EQ(state.epoch, 2);
  EXPECT_EQ(state.step, 40);
  EXPECT_EQ(state.samples_total, 1280);
  EXPECT_EQ(state.loss, 1.5);
  EXPECT_THAT(RunsTable(std::vector<RunState>{state}), HasSubstr("failed  40/120  1.5"));
  RunState named = state;
  named.folder = "a\nb\x1b[31m\u00fc";
  const std::string table = RunsTable(std::vector{named, state});
  EXPECT_EQ(std::ranges::count(table, '\n'), 3);
  EXPECT_THAT(table, Not(HasSubstr("\x1b")));
  const std::size_t header = table.find("state");
  EXPECT_EQ(table.find("failed") - table.find('\n') - 1, header + 1) << "ü has two bytes";
  EXPECT_THAT(StateText(state),
              HasSubstr("eval      loss 2, mae 0.5 @ 40\nbest      mae 0.25 @ 36"));
}

TEST(RefusedAttempt, KeepsEvaluationsBeforeRepeatedUpdates) {
  RunFiles run;
  const auto evaluate = [&](int step, double loss) {
    run.Event("000-811", step, "step", StrCat(R"(,"step":)", step));
    run.Event("000-811", step, "eval",
              StrCat(R"(,"step":)", step, R"(,"metric":"loss","value":)", loss, R"(,"best_step":)",
                     step, R"(,"best_value":)", loss));
  };
  evaluate(7, 22.5);
  evaluate(10, 21.5);
  run.Event("001-811", 20, "resume", R"(,"step":9)");
  run.Event("001-811", 21, "step", R"(,"step":10)");
  run.Event("001-812", 30, "starting");
  run.Append("STATUS.json", ReadRunStatus("starting", ""));
  const auto state = ValueOrThrow(ReadRunState(run.path(), After(1)));
  EXPECT_EQ(state.step, 10);
  EXPECT_THAT(StateText(state), HasSubstr("eval      loss 22.5 @ 7\nbest      loss 22.5 @ 7"));
}

// The last STATUS.json is that of the start; the verdict was written.
TEST(EndedAttempt, HasProgressOfEvents) {
  RunFiles run;
  for (const int step : {9, 10}) {
    run.Event("001-812", step, "step",
              StrCat(R"(,"step":)", step, R"(,"steps_total":10,"samples_total":)", 100 * step,
                     R"(,"loss":0.5,"loss_finite":true)"));
  }
  run.Event("001-812", 11, "eval",
            R"(,"step":10,"metric":"loss","value":0.25,"best_step":10,"best_value":0.25)");
  run.Append("attempts/001-812/verdict.json",
             RunFiles::Line(12, "verdict", 1,
                            R"(,"verdict":"done","exit":0,"last_step":10,"samples_total":1000)"));
  run.Append("STATUS.json", ReadRunStatus("starting", ""));
  const auto state = ValueOrThrow(ReadRunState(run.path(), After(1)));
  EXPECT_EQ(state.phase, RunPhase::kDone);
  EXPECT_EQ(state.steps_total, 10);
  EXPECT_EQ(state.loss, 0.5);
  ASSERT_TRUE(state.best.has_value());
  EXPECT_EQ(state.best->value, 0.25);
}

TEST_F(RunStateTest, ShowsLossThatIsNotFinite) {
  const RunState state =
      Read(ReadRunStatus("running", R"(,"step":20,"steps_total":40,"loss":null)"), 1);
  EXPECT_THAT(StateText(state), HasSubstr("loss      nan\n"));
  EXPECT_THAT(StateJson(state), HasSubstr(R"("loss":null)"));
  const RunState resumed = Read(ReadRunStatus("running", R"(,"step":20)"), 1);
  EXPECT_THAT(StateText(resumed), Not(HasSubstr("loss"))) << "no update yet";
}

TEST(RefusedAttempt, UsesProgressOfVerdictOrLedgerWithoutEvents) {
  const RunFiles run;
  run.Append("STATUS.json", ReadRunStatus("failed", R"(,"exit":78,"reason":"another model")"));
  const LedgerEntry before{.attempt = "000-811", .last = {.step = 36}, .exit = 75};
  ASSERT_TRUE(AppendToLedger(run.Path("ledger.jsonl"), before).ok());
  EXPECT_EQ(ReadRunState(run.path(), After(1))->step, 36) << "its newest checkpoint";
  run.Append("attempts/000-811/verdict.json",
             RunFiles::Line(4, "verdict", 1,
                            R"(,"verdict":"requeue","exit":75,"last_step":40,"samples_total":7)"));
  const auto state = ReadRunState(run.path(), After(1));
  EXPECT_EQ(state->step, 40);
  EXPECT_EQ(state->samples_total, 7);
  EXPECT_EQ(state->exit, 78);
}

// By one rule, the job's: what `gaccd status` shows, and --best exports.
TEST(RunsTest, ShowBestOfJobMetric) {
  const RunFiles runs;
  runs.Append("a/attempts/001-812/events.jsonl",
              RunFiles::Line(1, "eval", 1, R"(,"step":10,"metric":"top_5","value":0.99)"));
  runs.Append(
      "a/STATUS.json",
      ReadRunStatus("running", R"(,"best_metric":"mae","best_value":0.125,"best_step":20)"));
  testing::internal::CaptureStdout();
  ASSERT_TRUE(RunRunsCommand({.folder = runs.path()}).ok());
  const std::string table = testing::internal::GetCapturedStdout();
  EXPECT_THAT(table, HasSubstr("mae 0.125 @ 20"));
  EXPECT_THAT(table, Not(HasSubstr("top_5")));
}

TEST_F(RunStateTest, StopRequestPrintsConsequence) {
  const auto output = [&](const std::string& status, double age_s) {
    (void)std::filesystem::remove(folder_.Path("STOP"));
    (void)Read(status, age_s);
    testing::internal::CaptureStdout();
    EXPECT_TRUE(RunRequestCommand({.folder = folder_.path()}, RunRequest::kStop).ok());
    return testing::internal::GetCapturedStdout();
  };
  EXPECT_THAT(output(ReadRunStatus("failed", R"(,"exit":75)"), 1),
              HasSubstr("does not start again"));
  EXPECT_THAT(output(ReadRunStatus("failed", R"(,"exit":75)"), 1), Not(HasSubstr("next update")));
  std::string old = ReadRunStatus("running", "");
  old.replace(old.find("2026"), 4, "2020");
  EXPECT_THAT(output(old, 1), HasSubstr("still alive"));
}

TEST_F(RunStateTest, StopAndSaveCreateFilesInLiveRun) {
  const WatchRequest request{.folder = folder_.path()};
  const auto has = [&](const char* name) { return PathExists(folder_.path() + name); };
  EXPECT_THAT(RunRequestCommand(request, RunRequest::kStop), HasKind(ErrorKind::kUsage));  // no run
  (void)Read(ReadRunStatus("done", R"(,"exit":0)"), 1);
  EXPECT_THAT(RunRequestCommand(request, RunRequest::kStop), HasKind(ErrorKind::kUsage));
  EXPECT_FALSE(has("/STOP"));
  // A complete run whose folder has a job that waits: the file would keep it from being trained on.
  (void)folder_.Write("DONE", "");
  (void)Read(ReadRunStatus("failed", R"(,"exit":75)"), 1);
  EXPECT_THAT(RunRequestCommand(request, RunRequest::kStop), IsError(ErrorKind::kUsage, "is done"));
  Submit("2026-11-20T03:05:00.000000Z", "17");
  EXPECT_THAT(RunRequestCommand(request, RunRequest::kStop),
              IsError(ErrorKind::kUsage, "scancel 17"));
  EXPECT_FALSE(has("/STOP"));
  std::filesystem::remove(folder_.Path("DONE"));
  std::filesystem::remove(folder_.Path("submit.jsonl"));
  (void)Read(ReadRunStatus("failed", R"(,"exit":75)"), 1);  // waits in the queue
  EXPECT_THAT(RunRequestCommand(request, RunRequest::kSave), HasKind(ErrorKind::kUsage));
  EXPECT_FALSE(has("/SAVE"));
  EXPECT_TRUE(RunRequestCommand(request, RunRequest::kStop).ok());
  EXPECT_TRUE(has("/STOP"));
  EXPECT_EQ(Name(Read(ReadRunStatus("failed", R"(,"exit":93)"), 1).phase), "stopped");
  (void)Read(ReadRunStatus("running", ""), 0);
  EXPECT_TRUE(RunRequestCommand(request, RunRequest::kStop).ok());  // already exists
}

}  // namespace
}  // namespace gaccd
