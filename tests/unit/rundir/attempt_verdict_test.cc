#include "daemon/rundir/attempt_verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "collectives/base/strings.h"
#include "daemon/rundir/ledger.h"
#include "daemon/submit/verdict_command.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

TEST(JudgeAttempt, EveryCode) {
  const std::pair<int, NextStep> table[] = {
      {0, NextStep::kDone},       {64, NextStep::kFail},       {65, NextStep::kFail},
      {69, NextStep::kRequeue},   {70, NextStep::kFail},       {71, NextStep::kRequeue},
      {74, NextStep::kFail},      {75, NextStep::kRequeue},    {78, NextStep::kFail},
      {93, NextStep::kNoRequeue}, {130, NextStep::kNoRequeue}, {134, NextStep::kRequeue},
      {137, NextStep::kRequeue},  {139, NextStep::kRequeue},   {143, NextStep::kRequeue},
      {1, NextStep::kFail},       {127, NextStep::kFail},      {128, NextStep::kFail},
      {253, NextStep::kFail},     {255, NextStep::kFail},
  };
  for (const auto& [code, next] : table) {
    EXPECT_EQ(Name(JudgeAttempt({.srun_rc = code, .done_file = code == 0}).next), Name(next))
        << "without verdict " << code;
    // A written verdict counts whatever srun says, unless it is only that a peer was lost.
    AttemptFacts facts{.srun_rc = 143, .written = WrittenVerdict{.exit = code}};
    EXPECT_EQ(Name(JudgeAttempt(facts).next), Name(next)) << "with verdict " << code;
    facts.stop_file = true;
    EXPECT_EQ(JudgeAttempt(facts).next, next == NextStep::kRequeue ? NextStep::kNoRequeue
                                        : next == NextStep::kFail  ? NextStep::kNoRequeue
                                                                   : next)
        << code;
  }
}

TEST(JudgeAttempt, ReasonIsOfFirstFailedPeer) {
  AttemptFacts facts{.srun_rc = 65,
                     .written = WrittenVerdict{.exit = 69, .reason = "rank 3 on n2 left"}};
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kFail);
  EXPECT_EQ(JudgeAttempt(facts).exit, 65);
  EXPECT_THAT(JudgeAttempt(facts).reason, HasSubstr("rank 3 on n2 left"));
  facts.srun_rc = 93;
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kNoRequeue);
  facts.srun_rc = 137;  // killed from outside: no reason of its own
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kRequeue);
  EXPECT_EQ(JudgeAttempt(facts).exit, 69);
}

TEST(JudgeAttempt, RepeatedKillAtSamePlaceBlamesNoHost) {
  const auto judge = [](KilledRank now, std::optional<KilledRank> before) {
    AttemptFacts facts{.srun_rc = 69,
                       .written = WrittenVerdict{.exit = 69,
                                                 .reason = "rank 3 on n2 has ended",
                                                 .suspect_hosts = "n2",
                                                 .killed = now},
                       .srun_errors = "n2: task 3: Killed"};
    facts.before = {{.attempt = "000-7", .next = NextStep::kRequeue, .killed = before}};
    return JudgeAttempt(facts);
  };
  const AttemptJudgement again = judge({.step = 120, .memory_bytes = 1'000}, {{121, 950}});
  EXPECT_EQ(again.suspect_hosts, "");
  EXPECT_EQ(again.next, NextStep::kRequeue);
  EXPECT_THAT(again.reason, StartsWith("rank 3 on n2 has ended; srun: n2: task 3: Killed; "));
  EXPECT_THAT(again.reason, HasSubstr("--mem"));
  for (const std::optional<KilledRank> before :
       {std::optional<KilledRank>(), {{100, 1'000}}, {{120, 2'000}}, {{120, 0}}}) {
    const AttemptJudgement other = judge({.step = 120, .memory_bytes = 1'000}, before);
    EXPECT_EQ(other.suspect_hosts, "n2");
    EXPECT_EQ(other.reason, "rank 3 on n2 has ended; srun: n2: task 3: Killed");
  }
  EXPECT_EQ(judge({120, 0}, {{120, 0}}).suspect_hosts, "n2") << "nothing is known of its memory";
}

// Not with an earlier one, after which the job may have been given more memory.
TEST(JudgeAttempt, KillIsComparedWithAttemptBefore) {
  constexpr KilledRank kNow{.step = 120, .memory_bytes = 1'000};
  const LedgerEntry same{.attempt = "000-7", .next = NextStep::kRequeue, .killed = kNow};
  LedgerEntry other = same;
  other.killed->step = 10;
  AttemptFacts facts{
      .srun_rc = 69,
      .written = WrittenVerdict{
          .exit = 69, .reason = "rank 3 on n2 has ended", .suspect_hosts = "n2", .killed = kNow}};
  facts.before = {same, other};
  EXPECT_EQ(JudgeAttempt(facts).suspect_hosts, "n2");
  facts.before = {other, same};
  EXPECT_EQ(JudgeAttempt(facts).suspect_hosts, "");
}

TEST(SrunErrors, IgnoresTerminatedRanks) {
  EXPECT_EQ(SrunErrors("srun: error: n3: task 5: Killed\n"
                       "srun: launch/slurm: _step_signal: Terminating StepId=2.0\n"
                       "srun: error: n2: tasks 3-4: Out Of Memory\n"
                       "srun: error: n1: task 0: Exited with exit code 69\n"
                       "srun: Job step aborted: Waiting up to 7 seconds for job step to finish.\n"
                       "srun: error: n1: task 1: Killed\n"),
            "n3: task 5: Killed; n2: tasks 3-4: Out Of Memory");
  EXPECT_EQ(SrunErrors("srun: error: n1: task 1: \x1b[2J"), "n1: task 1: \\x1b[2J");
  EXPECT_EQ(SrunErrors(""), "");
  EXPECT_EQ(SrunErrors("srun: error: Unable to create step\nnonsense"), "");
  std::string many;
  for (int i = 0; i < 9; ++i) many += StrCat("srun: error: n", i, ": task ", i, ": Killed\n");
  EXPECT_THAT(SrunErrors(many), testing::EndsWith("n3: task 3: Killed; and 5 more"));
}

TEST(GaccdError, IsFirstLineOfFinalError) {
  EXPECT_EQ(GaccdError("4 ranks\ngaccd: warning: slow\n"
                       "gaccd: rank 5 on n2: error (data, exit 65): a\x1b\n"
                       "gaccd: error (config, exit 78): b"),
            "rank 5 on n2: error (data, exit 65): a\\x1b");
  EXPECT_EQ(GaccdError("x gaccd: error (data, exit 65): a\nerror (b"), "");
  EXPECT_EQ(GaccdError(""), "");
}

TEST(JudgeAttempt, OutOfMemoryBlamesNoHostAndIsNotRetried) {
  AttemptFacts facts{.srun_rc = 253};
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kFail);
  EXPECT_THAT(JudgeAttempt(facts).reason, HasSubstr("--mem"));
  // Rank 0 saw only that a rank was gone.
  facts.written = WrittenVerdict{.exit = 69, .reason = "rank 3 on n2 left", .suspect_hosts = "n2"};
  const AttemptJudgement judgement = JudgeAttempt(facts);
  EXPECT_EQ(judgement.next, NextStep::kFail);
  EXPECT_EQ(judgement.exit, 253);
  EXPECT_EQ(judgement.suspect_hosts, "");
  EXPECT_THAT(judgement.reason, HasSubstr("--micro-batch; rank 0: rank 3 on n2 left"));
  facts.srun_errors = "n2: task 3: Out Of Memory";
  EXPECT_THAT(JudgeAttempt(facts).reason, EndsWith("left; srun: n2: task 3: Out Of Memory"));
  facts.written = WrittenVerdict{.exit = 75, .reason = "SIGTERM, saved"};
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kRequeue) << "it had stopped by itself";
}

TEST(JudgeAttempt, CompleteRunIsDoneDespiteLaterDeath) {
  EXPECT_EQ(JudgeAttempt({.srun_rc = 78, .done_file = true}).next, NextStep::kFail)
      << "another job in a complete run";
  AttemptFacts facts{.srun_rc = 69, .done_file = true};  // the disk of rank 0 hung at its verdict
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kDone);
  facts.written = WrittenVerdict{.exit = 69, .reason = "rank 3 left", .suspect_hosts = "n2"};
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kDone);
  EXPECT_EQ(JudgeAttempt(facts).reason, "the training is complete");
  EXPECT_EQ(JudgeAttempt(facts).suspect_hosts, "");
}

TEST(JudgeAttempt, DoneFileFromBeforeAttemptDoesNotCount) {
  for (const int code : {69, 71, 75, 137, 139, 143}) {
    EXPECT_EQ(JudgeAttempt({.srun_rc = code, .done_file = true, .done_is_older = true}).next,
              NextStep::kRequeue)
        << code;
  }
  EXPECT_EQ(JudgeAttempt({.srun_rc = 0, .done_file = true, .done_is_older = true}).next,
            NextStep::kDone)
      << "the ranks found it complete";
}

TEST(JudgeAttempt, AttemptWithoutScript) {
  AttemptFacts facts{.sign = LastStatus{"running", "n1", 42}};
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kRequeue);
  EXPECT_EQ(JudgeAttempt(facts).reason,
            "rank 0 left no verdict, and the job script was lost before srun returned; rank 0 on "
            "n1 was last seen running after update 42");
  facts.written = WrittenVerdict{.exit = 65, .reason = "bad data"};
  EXPECT_EQ(JudgeAttempt(facts).next, NextStep::kFail);
  EXPECT_EQ(JudgeAttempt(facts).reason, "bad data");
}

TEST(JudgeAttempt, ReportsLastEventWithoutVerdict) {
  const AttemptJudgement judgement =
      JudgeAttempt({.srun_rc = 137, .sign = LastStatus{"running", "n1", 42}});
  EXPECT_EQ(judgement.reason,
            "rank 0 left no verdict; srun returned 137 (SIGKILL); rank 0 on n1 was last seen "
            "running after update 42");
}

LedgerEntry Requeued(std::int64_t step, std::int64_t micro = 0) {
  return {.last = {step, micro}, .next = NextStep::kRequeue};
}

TEST(JudgeAttempt, HoldsRunAfterThreeRestartsWithoutCheckpoint) {
  const auto judge = [](std::vector<LedgerEntry> before, CommittedStep now, int code = 69) {
    return JudgeAttempt(
        {.srun_rc = code, .done_file = code == 0, .before = std::move(before), .committed = now});
  };
  EXPECT_EQ(judge({}, {}).next, NextStep::kRequeue);
  EXPECT_EQ(judge({Requeued(-1), Requeued(-1)}, {}).next, NextStep::kRequeue) << "two restarts";
  const AttemptJudgement held = judge({Requeued(-1), Requeued(-1), Requeued(-1)}, {});
  EXPECT_EQ(held.next, NextStep::kNoRequeue);
  EXPECT_TRUE(held.held);
  EXPECT_THAT(held.reason, HasSubstr("3 restarts in a row brought no new checkpoint"));
  EXPECT_TRUE(judge({Requeued(5), Requeued(7), Requeued(7), Requeued(7)}, {7}).held);
  EXPECT_FALSE(judge({Requeued(5), Requeued(7), Requeued(7), Requeued(7)}, {8}).held);
  EXPECT_FALSE(judge({Requeued(7), Requeued(7), Requeued(7)}, {7, 2}).held) << "micro-steps count";
  EXPECT_FALSE(judge({Requeued(5), Requeued(6), Requeued(7)}, {7}).held);
  // Somebody looked at it since.
  LedgerEntry failed = Requeued(7);
  failed.next = NextStep::kFail;
  EXPECT_FALSE(judge({Requeued(7), failed, Requeued(7), Requeued(7)}, {7}).held);
  EXPECT_EQ(judge({Requeued(-1), Requeued(-1), Requeued(-1)}, {}, 0).next, NextStep::kDone);
}

class VerdictCommand : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::remove_all(run_);
    std::filesystem::create_directories(run_ + "/attempts");
  }
  void TearDown() override { std::filesystem::remove_all(run_); }

  // An attempt's folder with these files.
  std::string Attempt(const std::string& name, const std::string& verdict = "") {
    const std::string dir = StrCat(run_, "/attempts/", name);
    std::filesystem::create_directory(dir);
    Write(dir + "/events.jsonl", R"({"v":1,"ts":"2026-11-20T01:02:03.000004Z","ev":"run_start"})");
    if (!verdict.empty()) Write(dir + "/verdict.json", verdict);
    return dir;
  }
  static void Write(const std::string& path, const std::string& text) {
    std::ofstream(path) << text << "\n";
  }
  static std::string Read(const std::string& path) {
    std::stringstream text;
    text << std::ifstream(path).rdbuf();
    return text.str();
  }
  void Checkpoint(const std::string& name) const {
    std::filesystem::create_directories(StrCat(run_, "/ckpt/", name));
    Write(StrCat(run_, "/ckpt/", name, "/MANIFEST"), "");
  }
  static std::string Run(const std::string& dir, std::optional<int> rc,
                         const std::string& nodelist = "") {
    const auto text = RunVerdictCommand({.attempt_dir = dir, .srun_rc = rc, .nodelist = nodelist});
    EXPECT_TRUE(text.ok()) << text.status().message();
    return text.ok() ? *text : "";
  }

  const std::string run_ = testing::TempDir() + "/verdict-" + std::to_string(getpid());
};

TEST_F(VerdictCommand, ReportsUnwritableLedgerFirst) {
  const std::string attempt = Attempt("000-7", "");
  std::filesystem::create_directory(run_ + "/ledger.jsonl");
  EXPECT_THAT(Run(attempt, 74), StartsWith("fail\ncannot open '"));
  EXPECT_THAT(Run(attempt, 74), HasSubstr("ledger.jsonl': Is a directory; rank 0 left no verdict"));
}

TEST_F(VerdictCommand, PrintsNextStepAndAppendsLedger) {
  const std::string first = Attempt(
      "000-7",
      R"({"v":1,"ev":"verdict","verdict":"requeue","exit":69,"reason":"rank 5 on n3 is lost",)"
      R"("suspect_hosts":"n3","last_step":20,"loss":null})");
  Checkpoint("step-000000000015-e000001");
  EXPECT_EQ(Run(first, 143), "requeue\nrank 5 on n3 is lost\n--exclude=n3\n");
  EXPECT_EQ(Run(first, 143), "requeue\nrank 5 on n3 is lost\n--exclude=n3\n") << "asked again";
  Checkpoint("step-000000000030-micro-000002-e000002");
  EXPECT_EQ(Run(Attempt("001-7", R"({"verdict":"done","exit":0})"), 0),
            "done\nthe training is complete\n");

  const std::vector<LedgerEntry> entries = ReadLedger(run_ + "/ledger.jsonl");
  ASSERT_EQ(entries.size(), 2U);
  EXPECT_EQ(entries[0].attempt, "000-7");
  EXPECT_EQ(entries[0].started, "2026-11-20T01:02:03.000004Z");
  EXPECT_THAT(entries[0].ended, StartsWith("20"));
  EXPECT_EQ(entries[0].first, (CommittedStep{-1, 0}));
  EXPECT_EQ(entries[0].last, (CommittedStep{15, 0}));
  EXPECT_EQ(entries[0].exit, 69);
  EXPECT_EQ(entries[0].next, NextStep::kRequeue);
  EXPECT_EQ(entries[0].reason, "rank 5 on n3 is lost");
  EXPECT_EQ(entries[0].suspect_hosts, "n3");
  EXPECT_EQ(entries[1].first, (CommittedStep{15, 0}));
  EXPECT_EQ(entries[1].last, (CommittedStep{30, 2}));
  EXPECT_EQ(entries[1].next, NextStep::kDone);
}

TEST_F(VerdictCommand, LedgerHasLinePerAttempt) {
  const std::string path = run_ + "/ledger.jsonl";
  LedgerEntry entry{.attempt = "000-7",
                    .started = "2026-11-20T01:02:03.000004Z",
                    .ended = "2026-11-20T02:02:03.000004Z",
                    .last = {15, 2},
                    .exit = 69,
                    .next = NextStep::kRequeue,
                    .reason = "a \"b\"\n",
                    .suspect_hosts = "n3",
                    .killed = KilledRank{.step = 17, .memory_bytes = 5}};
  ASSERT_TRUE(AppendToLedger(path, entry).ok());
  ASSERT_TRUE(AppendToLedger(path, {.attempt = "001-7", .ended = "x"}).ok());
  EXPECT_EQ(Read(path),
            R"({"v":1,"attempt":"000-7","start_ts":"2026-11-20T01:02:03.000004Z",)"
            R"("end_ts":"2026-11-20T02:02:03.000004Z","first_step":-1,"first_micro_step":0,)"
            R"("last_step":15,"last_micro_step":2,"exit":69,"verdict":"requeue",)"
            R"("reason":"a \"b\"\n","suspect_hosts":"n3","killed_step":17,"killed_memory_bytes":5})"
            "\n"
            R"({"v":1,"attempt":"001-7","end_ts":"x","first_step":-1,"first_micro_step":0,)"
            R"("last_step":-1,"last_micro_step":0,"exit":0,"verdict":"fail","reason":""})"
            "\n");
  Write(path,
        Read(path) + R"({"attempt":"002-7","exit":"x","verdict":"fail"})" + "\n" +
            R"({"attempt":"003-7","exit":75,"verdict":"requeue","reason":7,"last_step":"9",)" +
            R"("first_step":4,"end_ts":null})" + "\n");
  const std::vector<LedgerEntry> entries = ReadLedger(path);
  ASSERT_EQ(entries.size(), 3U) << "the third line is no entry";
  EXPECT_EQ(entries[2].attempt, "003-7");
  EXPECT_EQ(entries[2].next, NextStep::kRequeue);
  EXPECT_EQ(entries[2].first.step, 4);
  EXPECT_EQ(entries[2].last.step, -1);
  EXPECT_EQ(entries[0].last, entry.last);
  EXPECT_EQ(entries[0].next, NextStep::kRequeue);
  EXPECT_EQ(entries[0].reason, entry.reason);
  EXPECT_EQ(entries[0].suspect_hosts, "n3");
  ASSERT_TRUE(entries[0].killed.has_value());
  EXPECT_EQ(entries[0].killed->memory_bytes, 5);
  EXPECT_EQ(entries[1].killed, std::nullopt);
}

TEST_F(VerdictCommand, RecordsWhereRankWasKilled) {
  const auto verdict = [](int memory) {
    return StrCat(R"({"verdict":"requeue","exit":69,"reason":"x","suspect_hosts":"n3",)",
                  R"("last_step":20,"first_rank":5,"first_killed":true,"first_memory_bytes":)",
                  memory, "}");
  };
  const std::string first = Attempt("000-7", verdict(5'000'000));
  Write(first + "/srun.err", "srun: error: n3: task 5: Killed\n");
  EXPECT_EQ(Run(first, 137), "requeue\nx; srun: n3: task 5: Killed\n--exclude=n3\n");
  EXPECT_THAT(Run(Attempt("001-7", verdict(5'100'000)), 137),
              testing::AllOf(HasSubstr("the job is too large"), Not(HasSubstr("--exclude"))));
}

TEST_F(VerdictCommand, NamesSuspectsByNodeName) {
  const std::string dir = Attempt(
      "000-7",
      R"({"verdict":"requeue","exit":69,"reason":"x","suspect_hosts":"n03.a.example,n1,login"})");
  EXPECT_EQ(Run(dir, 69, "n[01-04],n1.b.example"), "requeue\nx\n--exclude=n03,n1.b.example\n");
  EXPECT_EQ(Run(dir, 69, "m[1-4]"), "requeue\nx\n") << "none is a node of the job";
  EXPECT_EQ(Run(dir, 69, "n1.a.example,n1.b.example"), "requeue\nx\n") << "n1 may be either";
  EXPECT_EQ(Run(dir, 69, "n1.a.example,n1,n03.b.example"), "requeue\nx\n--exclude=n1\n");
  EXPECT_EQ(Run(dir, 69, "n["), "requeue\nx\n--exclude=n03.a.example,n1,login\n");
}

TEST_F(VerdictCommand, NamesSuspectsByNodesOfAttempt) {
  const std::string dir =
      Attempt("000-7", R"({"verdict":"requeue","exit":69,"reason":"x","suspect_hosts":"n1"})");
  Write(dir + "/env.json", R"({"SLURM_JOB_NODELIST":"n[1-2]"})");
  EXPECT_EQ(Run(dir, std::nullopt, "n[2-3]"), "requeue\nx\n--exclude=n1\n")
      << "the job that asks has other nodes";
  Write(dir + "/env.json", R"({"SLURM_JOB_NODELIST":"n1;rm,n2"})");
  EXPECT_THAT(Run(dir, std::nullopt, "n[2-3]"), Not(HasSubstr(";")));
}

TEST_F(VerdictCommand, DoneFileIsOlderThanAttemptThatContinues) {
  Write(run_ + "/DONE", "4 updates");
  const std::string done = run_ + "/DONE";
  const std::string first = Attempt("000-9");
  EXPECT_THAT(Run(first, 137), StartsWith("requeue\n")) << "killed before it made its folder";
  const std::string second = Attempt("001-9");
  Write(second + "/env.json", "{}");
  const auto start = std::filesystem::last_write_time(second + "/env.json");
  std::filesystem::last_write_time(done, start - std::chrono::seconds(9));
  EXPECT_THAT(Run(second, 69), StartsWith("requeue\n")) << "killed before it removed the file";
  std::filesystem::last_write_time(done, start + std::chrono::seconds(9));
  EXPECT_EQ(Run(second, 69), "done\nthe training is complete\n");
}

TEST_F(VerdictCommand, UsesStatusOfAttemptWithoutVerdict) {
  Write(run_ + "/STATUS.json",
        R"({"attempt_dir":"attempts/000-7","state":"running","host":"n1","step":12})");
  EXPECT_THAT(Run(Attempt("000-7"), 137), HasSubstr("rank 0 on n1 was last seen running after"));
  EXPECT_THAT(
      Run(Attempt("001-7"), 137),
      AllOf(StartsWith("requeue\nrank 0 left no verdict; srun returned 137 (SIGKILL); output "
                       "of the ranks: /"),
            EndsWith("/attempts/001-7\n")))
      << "the status belongs to another attempt";
}

// A job that is refused before the run folder is opened.
TEST_F(VerdictCommand, UsesErrorOfRankWithoutVerdict) {
  const std::string dir = Attempt("000-7");
  std::filesystem::create_directory(dir + "/rank");
  Write(dir + "/rank/r00000.err", "a warning");
  Write(dir + "/rank/r00001.err", "gaccd: rank 1 on n2: error (config, exit 78): --target-batch=0");
  EXPECT_EQ(
      Run(dir, 78),
      "fail\nrank 0 left no verdict; srun returned 78; rank 1 on n2: error (config, exit 78): "
      "--target-batch=0\n");
  Write(dir + "/check.txt", "gaccd: rank 3 on n2: error (config, exit 78): no GPU");
  EXPECT_THAT(Run(dir, 78), HasSubstr("; rank 3 on n2: error (config, exit 78): no GPU\n"));
  Write(dir + "/verdict.json", R"({"verdict":"fail","exit":65,"reason":"labels"})");
  EXPECT_EQ(Run(dir, 65), "fail\nlabels\n");
}

TEST_F(VerdictCommand, HoldsRunAndWritesFile) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Run(Attempt(StrCat("00", i, "-7")), 139), StartsWith("requeue\n")) << i;
  }
  EXPECT_FALSE(std::filesystem::exists(run_ + "/HOLD"));
  EXPECT_THAT(Run(Attempt("003-7"), 139), StartsWith("norequeue\nheld: 3 restarts in a row"));
  EXPECT_THAT(Read(run_ + "/HOLD"), HasSubstr("SIGSEGV"));
}

TEST_F(VerdictCommand, EarlierAttemptIsJudgedAgainWithoutRecord) {
  for (int i = 0; i < 4; ++i) {
    Checkpoint(StrCat("step-00000000000", i, "-e00000", i + 1));
    EXPECT_THAT(Run(Attempt(StrCat("00", i, "-7")), 139), StartsWith("requeue\n")) << i;
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_THAT(Run(Attempt(StrCat("00", i, "-7")), 139), StartsWith("requeue\n")) << i;
  }
  EXPECT_EQ(ReadLedger(run_ + "/ledger.jsonl").size(), 4U);
  EXPECT_FALSE(std::filesystem::exists(run_ + "/HOLD"));
}

TEST_F(VerdictCommand, CountsAttemptsWithoutScripts) {
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(Run(Attempt(StrCat("00", i, "-7")), std::nullopt), StartsWith("requeue\n")) << i;
  }
  EXPECT_THAT(Run(Attempt("003-7"), std::nullopt), StartsWith("norequeue\nheld"));
  EXPECT_TRUE(std::filesystem::exists(run_ + "/HOLD"));
}

TEST_F(VerdictCommand, RequeuedRunContinues) {
  Checkpoint("step-000000005000-e000001");  // before it was sent back; damaged, or a milestone
  for (int i = 0; i < 5; ++i) {
    Checkpoint(StrCat("step-000000001", i, "00-e00000", i + 2));
    EXPECT_THAT(Run(Attempt(StrCat("00", i, "-7")), 139), StartsWith("requeue\n")) << i;
  }
  EXPECT_EQ(ReadLedger(run_ + "/ledger.jsonl").back().last, (CommittedStep{1400, 0}));
  // What is saved again at the same place by every start is no progress, and neither is what was
  // never finished.
  for (int i = 5; i < 8; ++i) {
    Checkpoint(StrCat("step-000000001400-e00000", i + 2));
    std::filesystem::create_directories(StrCat(run_, "/ckpt/step-00000000150", i, "-e000009"));
    EXPECT_THAT(Run(Attempt(StrCat("00", i, "-7")), 139),
                StartsWith(i < 7 ? "requeue\n" : "norequeue\nheld"))
        << i;
  }
}

TEST_F(VerdictCommand, ReadsEndOfLargeLedger) {
  const std::string path = run_ + "/ledger.jsonl";
  LedgerEntry entry = Requeued(3);
  entry.reason = std::string(5000, 'x');
  entry.attempt = "0-7";
  ASSERT_TRUE(AppendToLedger(path, entry).ok());
  const std::string line = Read(path);
  for (int i = 1; i < 1200; ++i) std::ofstream(path, std::ios::app) << line;
  entry.attempt = "1200-7";
  ASSERT_TRUE(AppendToLedger(path, entry).ok());
  const std::vector<LedgerEntry> entries = ReadLedger(path);
  ASSERT_GT(entries.size(), 900U);
  EXPECT_LT(entries.size(), 1200U);
  EXPECT_EQ(entries.front().reason, std::string(1000, 'x')) << "a whole line";
  EXPECT_EQ(entries.back().attempt, "1200-7");
}

TEST_F(VerdictCommand, FilesHavePermissionsOfAttempt) {
  const auto mode = [&](const char* name) {
    return std::filesystem::status(run_ + name).permissions();
  };
  for (const auto& [folder, file] : {std::pair{0700, 0600}, std::pair{0750, 0640}}) {
    SetUp();
    for (int i = 0; i < 4; ++i) {
      const std::string dir = Attempt(StrCat("00", i, "-7"));
      std::filesystem::permissions(dir, std::filesystem::perms(folder));
      Run(dir, 139);
    }
    EXPECT_EQ(mode("/HOLD"), std::filesystem::perms(file));
    EXPECT_EQ(mode("/ledger.jsonl"), std::filesystem::perms(file));
  }
}

TEST_F(VerdictCommand, StopFileEndsRun) {
  Write(run_ + "/STOP", "");
  EXPECT_THAT(Run(Attempt("000-7", R"({"verdict":"requeue","exit":75,"reason":"x"})"), 75),
              StartsWith("norequeue\n"));
}

TEST_F(VerdictCommand, FindsSecondStartByLink) {
  const std::string first = Attempt("000-7", R"({"verdict":"norequeue","exit":93,"reason":"x"})");
  Attempt("000-7.2", R"({"verdict":"requeue","exit":75,"reason":"y"})");
  std::filesystem::create_symlink("000-7.2", run_ + "/attempts/latest");
  EXPECT_EQ(Run(first, 75), "requeue\ny\n");
}

TEST_F(VerdictCommand, DamagedFilesCountAsMissing) {
  for (const std::string& bad :
       {std::string("{"), std::string("[]"), std::string("{\"exit\":0}"), std::string(3 << 20, 'x'),
        std::string("{\"verdict\":{\"a\":1},\"exit\":0}")}) {
    EXPECT_THAT(Run(Attempt("000-7", bad), 137), StartsWith("requeue\nrank 0 left no verdict"));
  }
  // What else is of another type is left out.
  EXPECT_EQ(Run(Attempt("000-9", R"({"verdict":"fail","exit":78,"reason":"x","last_step":"7",)"
                                 R"("dur_s":"long","suspect_hosts":5,"first_rank":1.5})"),
                78),
            "fail\nx\n");
  // Nothing but host names reaches the shell, and every answer is one line.
  const std::string dir =
      Attempt("001-7",
              R"({"verdict":"requeue","exit":69,"reason":"a\nrequeue","suspect_hosts":"n1;rm x"})");
  EXPECT_EQ(Run(dir, 69), "requeue\na requeue\n");
  int attempt = 2;
  for (const char* hosts :
       {"$(x)", "`x`", R"(n1\nn2)", "-x", "--exclude=n1", "n1 n2", R"(n1\u001b)", "n1&x", "n1|x",
        "n1>x", "*", "~", "'n1'", R"(\"n1)", "n\xC3\xBC"}) {
    std::filesystem::remove(run_ + "/ledger.jsonl");  // so many restarts would be too many
    const std::string one = Attempt(
        StrCat("00", attempt++, "-8"),
        StrCat(R"({"verdict":"requeue","exit":75,"reason":"x","suspect_hosts":")", hosts, R"("})"));
    EXPECT_EQ(Run(one, 75), "requeue\nx\n") << hosts;
  }
  std::ofstream(run_ + "/ledger.jsonl", std::ios::app) << "{\"attempt\":\"torn";
  Run(Attempt("099-7", R"({"verdict":"requeue","exit":75,"reason":"z"})"), 75);
  EXPECT_EQ(ReadLedger(run_ + "/ledger.jsonl").back().attempt, "099-7");
}

TEST_F(VerdictCommand, SrunWithoutStartIsNotDone) {
  EXPECT_THAT(Run(Attempt("000-7"), 0), StartsWith("requeue\nsrun returned 0, but nothing"));
  Write(run_ + "/DONE", "160 updates");
  EXPECT_EQ(Run(Attempt("001-7"), 0), "done\nthe training is complete\n") << "another attempt was";
}

TEST_F(VerdictCommand, RefusesWrongFolder) {
  for (const std::string& dir : {run_, run_ + "/attempts/none", std::string("/")}) {
    EXPECT_THAT(RunVerdictCommand({.attempt_dir = dir, .srun_rc = 0}), HasKind(ErrorKind::kUsage));
  }
}

}  // namespace
}  // namespace gaccd
