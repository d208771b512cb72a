// Reports of runs that are written by hand: what the JSON says is what the events say.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <set>

#include "collectives/base/files.h"
#include "collectives/base/json.h"
#include "daemon/inspect/report/report_command.h"
#include "daemon/inspect/report/report_data.h"
#include "tests/support/run_files.h"
#include "tests/support/small_run.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

constexpr std::string_view kEvil = "a </script><script>alert(1)</script> \\\"b\\\" $(touch x) & '";

std::string Step(int step, double loss) {
  return StrCat(R"(,"step":)", step, R"(,"samples":48,"target":48,"loss":)", loss,
                R"(,"loss_finite":true,"grad_norm":)", 0.5 + 0.25 * step,
                R"(,"grad_finite":true,"lr":0.1,"dur_s":2,"data_s":0.5,"fwd_bwd_s":1,)",
                R"("reduce_s":0.25,"opt_s":0.25,"wait_s":0.125,"dur_p99_s":2.5,)",
                R"("straggler_rank":)", step % 4, R"(,"straggler_host":"n)", step % 4 / 2 + 1,
                R"(","straggler_phase":"compute","straggler_ratio":1.5)");
}

constexpr std::string_view kPlan =
    R"(,"mode":"exact","nodes":30,"gpus_per_node":8,"world":240,"micro_batch":10,)"
    R"("base_batch":2400,"target_batch":3072,"effective_batch":3072,"ratio":1.28,"accum_steps":2)";

class ReportTest : public testing::Test {
 protected:
  // Attempt 0: updates 1 to 4, then rank 5 fails. Attempt 1 continues after 2, with other
  // settings.
  void SetUp() override {
    const std::string first = "000-812";
    run_.Event(first, 0, "run_start",
               R"(,"version":"0.1.0","nodes":30,"model":"mlp","flops_per_sample":2e9,)"
               R"("memory_planned_bytes":4096)");
    run_.Event(first, 1, "plan", kPlan);
    for (int step = 1; step <= 4; ++step) {
      run_.Event(first, 10 + 2 * step, "step", Step(step, 4.0625 / step));
    }
    run_.Event(first, 19, "save", R"(,"step":2,"ok":true,"bytes":1000,"stall_s":0.5,"dur_s":0.75)");
    run_.Crash(first, 20, 5, R"(,"exit":74,"msg":"full <disk>")");
    run_.Append("attempts/000-812/env.json", R"({"NCCL_DEBUG":"WARN","SLURM_JOB_ID":"812",)"
                                             R"("SLURM_PMIXP_ABORT_AGENT_PORT":"1"})");
    run_.Append("attempts/000-812/job.txtpb", "lr: 0.1\nepochs: 3\n");
    const std::string second = "001-812";
    run_.Event(second, 40, "run_start",
               R"(,"version":"0.1.0","nodes":29,"model":"mlp","flops_per_sample":2e9,"gpu":"H100",)"
               R"("memory_planned_bytes":8192)");
    run_.Event(second, 41, "plan", kPlan);
    run_.Event(second, 44, "resume", R"(,"step":2,"dur_s":1.5)");
    for (int step = 3; step <= 5; ++step) {
      run_.Event(second, 40 + 4 * step, "step",
                 Step(step, 1.015625 / step) + R"(,"mfu_ratio":0.41)");
    }
    run_.Event(second, 61, "eval", R"(,"step":5,"metric":"accuracy","value":0.8125,"dur_s":0.5)");
    run_.Append("attempts/001-812/env.json", R"({"NCCL_DEBUG":"INFO","SLURM_JOB_ID":"812",)"
                                             R"("SLURM_PMIXP_ABORT_AGENT_PORT":"2"})");
    run_.Append("attempts/001-812/job.txtpb", "lr: 0.2\nepochs: 3\n");
    run_.Append("STATUS.json",
                StrCat(R"({"ts":")", At(70), R"(","run":")", kEvil,
                       R"(","job":"812","world":240,"step":5,"steps_total":9,)",
                       R"("attempt_dir":"attempts/001-812","state":"failed","exit":74,)",
                       R"("best_metric":"accuracy","best_value":0.8125,"best_step":5,)",
                       R"("reason":")", kEvil, "\"}"));
  }

  static ReportData Read(const RunFiles& run) {
    return ValueOrThrow(ReadReportData(run.path(), *ParseTimestamp(At(80))));
  }
  // The report of one run, or of several.
  static Json Written(std::initializer_list<const RunFiles*> runs,
                      PageLanguage language = PageLanguage::kBoth) {
    std::vector<ReportData> data;
    for (const RunFiles* run : runs) data.push_back(Read(*run));
    auto page = Json::ParseObject(ReportJson(data, language));
    EXPECT_TRUE(page);
    return *std::move(page);
  }
  Json Written() { return Written({&run_}); }

  RunFiles run_;
};

// What is at a place as "runs/0/figures/loss", as JSON.
std::string JsonAt(const Json& page, std::string_view path) {
  const Json* at = &page;
  while (at != nullptr && !path.empty()) {
    const std::string_view name = path.substr(0, path.find('/'));
    path.remove_prefix(std::min(path.size(), name.size() + 1));
    std::size_t place = 0;
    if (at->array() == nullptr) {
      at = at->Find(name);
    } else {
      std::from_chars(name.data(), name.data() + name.size(), place);
      at = place < at->array()->size() ? &(*at->array())[place] : nullptr;
    }
  }
  return at == nullptr ? "nothing" : at->Dump();
}

std::string FirstRun(const Json& page, std::string_view path) {
  return JsonAt(page, StrCat("runs/0/", path));
}

// An attempt that went back and did fewer updates: what it did not do again is lost as well.
TEST_F(ReportTest, OmitsLostUpdatesOfEarlierAttempt) {
  run_.Event("002-812", 80, "resume", R"(,"step":3,"dur_s":1.5)");
  Json page = Written();
  EXPECT_EQ(FirstRun(page, "curves/loss/pieces/0/count"), "2");
  EXPECT_EQ(FirstRun(page, "curves/loss/pieces/1/count"), "1");
  EXPECT_EQ(FirstRun(page, "evals/0/curve/pieces/0/count"), "0");
  EXPECT_EQ(FirstRun(page, "figures/evals"), "[]") << "that of update 5";
  run_.Event("002-812", 82, "step", Step(4, 0.5));
  page = Written();
  EXPECT_EQ(FirstRun(page, "curves/loss/pieces/2/steps"), "[4]");
  EXPECT_EQ(FirstRun(page, "curves/loss/pieces/1/count"), "1");
}

TEST_F(ReportTest, CurvesHaveEventValues) {
  const Json page = Written();
  EXPECT_EQ(FirstRun(page, "curves/grad_norm"),
            R"({"width":1,"pieces":[{"steps":[1,2,3,4],"values":[0.75,1.0,1.25,1.5],)"
            R"("count":2},{"steps":[3,4,5],"values":[1.25,1.5,1.75],"count":3}]})");
  EXPECT_EQ(FirstRun(page, "curves/loss/pieces/0/values/3"), "1.01562");
  EXPECT_EQ(FirstRun(page, "curves/loss/pieces/1/values/2"), "0.203125");
  EXPECT_EQ(FirstRun(page, "curves/lr/pieces/1/values"), "[0.1,0.1,0.1]");
  EXPECT_EQ(FirstRun(page, "curves/dur_p99_s/pieces/0/values"), "[2.5,2.5,2.5,2.5]");
  EXPECT_EQ(FirstRun(page, "evals"),
            R"([{"metric":"accuracy","curve":)"
            R"({"width":1,"pieces":[{"steps":[5],"values":[0.8125],"count":1}]}}])");
  EXPECT_EQ(FirstRun(page, "first_step"), "1");
  EXPECT_EQ(FirstRun(page, "last_step"), "5");
}

TEST_F(ReportTest, BatchIsOfNewestStage) {
  EXPECT_EQ(FirstRun(Written(), "figures/effective_batch"), "3072");
  EXPECT_EQ(FirstRun(Written(), "plan/stage_after"), "0");
  run_.Event("001-812", 62, "target",
             R"(,"step":5,"target":6144,"accum_steps":4,"loads":"144x26,96x25")");
  const Json page = Written();
  EXPECT_EQ(FirstRun(page, "figures/effective_batch"), "6144");
  EXPECT_EQ(FirstRun(page, "plan/stage_after"), "5");
  EXPECT_EQ(FirstRun(page, "plan/stage_batch"), "6144");
  EXPECT_EQ(FirstRun(page, "plan/stage_loads"), R"("144x26,96x25")");
}

// As doctor: the files alone would say that rank 0 is silent.
TEST_F(ReportTest, AsksSlurmAboutARunThatWritesNothing) {
  RunFiles run;
  run.Event("000-812", 1, "step", Step(1, 0.5));
  run.Append("STATUS.json",
             StrCat(R"({"ts":")", At(2), R"(","job":"812","attempt_dir":"attempts/000-812",)",
                    R"("state":"running","world":1,"step":1,"steps_total":9})"));
  const auto find = [](std::span<const std::string>) {
    return std::optional(JobStates{{"812", {"CANCELLED", "", ""}}});
  };
  const auto phase = [&](const JobFinder& finder) {
    std::vector<ReportData> data;
    data.push_back(ValueOrThrow(ReadReportData(run.path(), *ParseTimestamp(At(80)), finder)));
    return FirstRun(*Json::ParseObject(ReportJson(data, PageLanguage::kBoth)), "phase");
  };
  EXPECT_EQ(phase({}), R"("stale")");
  EXPECT_EQ(phase(find), R"("stopped")");
}

TEST_F(ReportTest, ShowsRunHistory) {
  const Json page = Written();
  EXPECT_EQ(JsonAt(page, "language"), R"("both")");
  EXPECT_EQ(JsonAt(page, "read_at"), "1795143680.0") << "2026-11-20 03:01:20 UTC";
  EXPECT_EQ(FirstRun(page, "phase"), R"("failed")");
  EXPECT_EQ(FirstRun(page, "exit"), "74");
  EXPECT_EQ(FirstRun(page, "model"), R"("mlp")");
  EXPECT_EQ(FirstRun(page, "next_command"), StrCat("\"gaccd doctor ", run_.path(), "\""));
  EXPECT_THAT(FirstRun(page, "advice/0/en"), HasSubstr("disk"));
  EXPECT_EQ(FirstRun(page, "figures/on_target"), "7");
  EXPECT_EQ(FirstRun(page, "figures/updates"), "7");
  EXPECT_EQ(FirstRun(page, "figures/lost_updates"), "2");
  EXPECT_EQ(FirstRun(page, "figures/mfu_ratio"), "0.41");
  EXPECT_EQ(FirstRun(page, "figures/gpu"), R"("H100")");
  EXPECT_EQ(FirstRun(page, "figures/flops"), "6.72e+11") << "7 updates of 48 samples";
  EXPECT_EQ(FirstRun(page, "figures/updates_s"), "14.0");
  EXPECT_EQ(FirstRun(page, "figures/evals"), R"([{"metric":"accuracy","value":0.8125}])");
  EXPECT_EQ(FirstRun(page, "saves/0/bytes"), "1000.0");
  EXPECT_EQ(FirstRun(page, "slow_ranks/1"),
            R"({"rank":1,"host":"n1","phase":"compute","updates":2,"worst_ratio":1.5})");
  EXPECT_EQ(FirstRun(page, "job_text"), R"("lr: 0.2\nepochs: 3\n")");
}

TEST_F(ReportTest, WritesPlanWithRankLoads) {
  const Json page = Written();
  EXPECT_EQ(FirstRun(page, "plan/base_batch"), "2400");
  EXPECT_EQ(FirstRun(page, "plan/choices/0"),
            R"({"mode":"floor","effective_batch":2400,"error_ratio":-0.21875})");
  EXPECT_EQ(FirstRun(page, "plan/choices/1/effective_batch"), "3072");
  EXPECT_EQ(FirstRun(page, "plan/choices/2/error_ratio"), "0.5625");
  EXPECT_EQ(FirstRun(page, "plan/loads"), R"([{"ranks":192,"samples":13,"parts":[7,6]},)"
                                          R"({"ranks":48,"samples":12,"parts":[6,6]}])");
  const auto samples = Json::Parse(FirstRun(page, "plan/rank_samples"));
  ASSERT_EQ(samples->array()->size(), 240);
  EXPECT_EQ(std::ranges::count(*samples->array(), Json(13)), 192);
  RunFiles pipelines;
  pipelines.Event("000-9", 0, "plan",
                  R"(,"mode":"exact","nodes":1,"gpus_per_node":4,"world":4,"stages":2,)"
                  R"("micro_batch":10,"target_batch":100)");
  EXPECT_EQ(FirstRun(Written({&pipelines}), "plan/base_batch"), "20");
  EXPECT_EQ(FirstRun(Written({&pipelines}), "plan/loads"),
            R"([{"ranks":4,"samples":50,"parts":[10,10,10,10,10]}])");
  RunFiles other;
  other.Event("000-9", 0, "plan", R"(,"mode":"exact","nodes":30)");
  EXPECT_EQ(FirstRun(Written({&other}), "plan"), "null") << "the event does not say enough";
}

// The page marks the choice of this name.
TEST_F(ReportTest, ShowsRequestedRoundingAmongChoices) {
  EXPECT_EQ(FirstRun(Written(), "plan/choices/3"), "nothing") << "nearest was not asked for";
  for (const std::string_view mode : {"floor", "exact", "ceil", "nearest"}) {
    RunFiles other;
    other.Event("000-9", 0, "plan",
                StrCat(R"(,"mode":")", mode, R"(","nodes":2,"gpus_per_node":8,"world":16,)",
                       R"("micro_batch":10,"target_batch":250)"));
    const Json page = Written({&other});
    EXPECT_EQ(FirstRun(page, "plan/mode"), StrCat("\"", mode, "\""));
    const auto choices = Json::Parse(FirstRun(page, "plan/choices"));
    EXPECT_EQ(std::ranges::count_if(*choices->array(),
                                    [&](const Json& one) { return *one.text("mode") == mode; }),
              1)
        << mode;
    if (mode == "nearest") {
      EXPECT_EQ(choices->array()->back().Dump(),
                R"({"mode":"nearest","effective_batch":320,"error_ratio":0.28})");
    }
  }
}

// Of a change that says not all speeds, what it says is shown as it is.
TEST_F(ReportTest, ShowsLoadsAfterLastChange) {
  EXPECT_EQ(FirstRun(Written(), "plan/changed_after"), "0");
  const auto change = [](int step, std::string_view speeds, std::string_view loads) {
    return StrCat(R"(,"step":)", step, R"(,"speeds":")", speeds, R"(","loads":")", loads, "\"");
  };
  run_.Event("001-812", 62, "rebalance", change(3, "240x1", "192x13,48x12"));
  run_.Event("001-812", 63, "rebalance", change(4, "160x1,80x0.6", "112x15,48x14,80x9"));
  const Json page = Written();
  EXPECT_EQ(FirstRun(page, "plan/loads"), R"([{"ranks":112,"samples":15,"parts":[8,7]},)"
                                          R"({"ranks":48,"samples":14,"parts":[7,7]},)"
                                          R"({"ranks":80,"samples":9,"parts":[9,0]}])");
  EXPECT_EQ(FirstRun(page, "plan/rank_samples/239"), "9");
  EXPECT_EQ(FirstRun(page, "plan/changed_after"), "4");
  run_.Event("001-812", 64, "rebalance", change(5, "1x1,1x0.9...", "240x12-13"));
  EXPECT_EQ(FirstRun(Written(), "plan/new_loads"), R"("240x12-13")");
  EXPECT_EQ(FirstRun(Written(), "plan/loads/0/samples"), "13");
  run_.Event("002-812", 70, "plan", kPlan);
  EXPECT_EQ(FirstRun(Written(), "plan/changed_after"), "0") << "another attempt";
}

TEST_F(ReportTest, AttemptsHaveFailuresAndChanges) {
  const Json page = Written();
  EXPECT_EQ(FirstRun(page, "attempts/0/failures/0/rank"), "5");
  EXPECT_EQ(FirstRun(page, "attempts/0/failures/0/message"), R"("full <disk>")");
  EXPECT_EQ(FirstRun(page, "attempts/0/changes"), "[]");
  EXPECT_EQ(FirstRun(page, "attempts/1/first_step"), "3");
  const std::string changes = FirstRun(page, "attempts/1/changes");
  EXPECT_THAT(changes, HasSubstr(R"({"name":"NCCL_DEBUG","before":"WARN","after":"INFO"})"));
  EXPECT_THAT(changes, HasSubstr(R"({"name":"nodes","before":"30","after":"29"})"));
  EXPECT_THAT(changes, Not(HasSubstr("SLURM_PMIXP"))) << "every start changes it";
  EXPECT_THAT(changes, Not(HasSubstr("memory_planned_bytes")));
  EXPECT_THAT(changes, Not(HasSubstr("SLURM_JOB_ID"))) << "it is the same";
  EXPECT_EQ(FirstRun(page, "attempts/1/job_changes"),
            R"([{"name":"","before":"lr: 0.1","after":""},)"
            R"({"name":"","before":"","after":"lr: 0.2"}])");
}

TEST_F(ReportTest, UsesJobScriptJudgementOfAttempt) {
  run_.Event("001-812", 63, "verdict", R"(,"verdict":"requeue","exit":69,"reason":"lost")");
  run_.Append("ledger.jsonl",
              R"({"attempt":"001-812","exit":253,"verdict":"fail","reason":"more --mem"})"
              "\n");
  const Json page = Written();
  EXPECT_EQ(FirstRun(page, "attempts/1/exit"), "253");
  EXPECT_EQ(FirstRun(page, "attempts/1/verdict"), "\"fail\"");
  EXPECT_EQ(FirstRun(page, "attempts/1/reason"), "\"more --mem\"");
}

TEST_F(ReportTest, ShowsFirstFailureIfAllOnlyLostPeers) {
  RunFiles other;
  other.Event("000-9", 0, "run_start");
  for (const int rank : {3, 2, 1}) {
    other.Crash("000-9", 54 - rank, rank, R"(,"exit":69,"lost_ranks":"0","msg":"lost rank 0")");
  }
  const Json echoes = Written({&other});
  EXPECT_EQ(FirstRun(echoes, "attempts/0/failures/0/rank"), "3");
  EXPECT_EQ(FirstRun(echoes, "attempts/0/failures/1"), "nothing");
  EXPECT_EQ(FirstRun(echoes, "attempts/0/more_failures"), "2");
  other.Crash("000-9", 56, 0, R"(,"signal":11,"msg":"SIGSEGV")");
  const Json cause = Written({&other});
  EXPECT_EQ(FirstRun(cause, "attempts/0/failures/0/rank"), "0");
  EXPECT_EQ(FirstRun(cause, "attempts/0/failures/1"), "nothing");
  EXPECT_EQ(FirstRun(cause, "attempts/0/more_failures"), "3");
}

TEST_F(ReportTest, SumsPhasesAndSlowRanksOverUpdates) {
  const Json page = Written();
  // Updates 3 and 4 were done twice.
  EXPECT_EQ(FirstRun(page, "phases/bins/2"),
            R"({"index":3,"updates":2,"compute_s":2.0,"reduce_s":0.25,"wait_s":0.25,)"
            R"("optimizer_s":0.5,"data_s":1.0,"other_s":0.0})");
  EXPECT_EQ(FirstRun(page, "slow/bins/2"), R"({"index":3,"updates":2,"ranks":[[3,2]]})");
  EXPECT_EQ(FirstRun(page, "slow/width"), "1");
}

TEST(LineChangesTest, CountsLines) {
  std::vector<std::string> said;
  for (const Change& one : LineChanges("a\nb\na\n\n", "c\na\n")) {
    said.push_back(StrCat("-", one.before, " +", one.after));
  }
  EXPECT_THAT(said, ElementsAre("-b +", "-a +", "- +c"));
}

TEST_F(ReportTest, EscapesTextOfRun) {
  const ReportData data = Read(run_);
  const std::string text = ReportJson({&data, 1}, PageLanguage::kZh);
  EXPECT_THAT(text, Not(HasSubstr("<")));
  const auto page = Json::Parse(text);
  ASSERT_TRUE(page);
  EXPECT_THAT(*page->Find("runs")->array()->front().text("run"),
              HasSubstr("a </script><script>alert(1)</script>"));
  EXPECT_EQ(JsonAt(*page, "language"), R"("zh")");
}

TEST_F(ReportTest, ReportsFileProblems) {
  run_.Event("003-812", 50, "run_start");  // 002 is missing, and 001 ends at 61
  run_.Append("attempts/003-812/events.jsonl", R"({"v":1,"ts":"2026)");
  const std::string notes = FirstRun(Written(), "notes");
  EXPECT_THAT(notes, HasSubstr("attempt 002-812 has no folder"));
  EXPECT_THAT(notes, HasSubstr("attempt 003-812: its last line is cut off"));
  EXPECT_THAT(notes, HasSubstr("both ran at once"));
}

TEST_F(ReportTest, SkipsDamagedValues) {
  const Json before = Written();
  run_.Event("001-812", 62, "step", R"(,"step":6,"loss":null,"loss_finite":false,"dur_s":-1)");
  run_.Event("001-812", 63, "step", R"(,"step":9000000000000000000,"loss":1,"dur_s":1)");
  run_.Event("001-812", 64, "step", R"(,"step":7,"loss":"x","dur_s":1e999)");
  run_.Event("001-812", 65, "eval", R"(,"step":-4,"metric":"accuracy","value":1)");
  run_.Event("001-812", 66, "eval", R"(,"step":4,"metric":"accuracy","value":1e999)");
  const Json page = Written();
  EXPECT_EQ(FirstRun(page, "curves"), FirstRun(before, "curves"));
  EXPECT_EQ(FirstRun(page, "evals"), FirstRun(before, "evals"));
  EXPECT_EQ(FirstRun(page, "figures/loss"), "null");
  ReportData data;
  data.figures.evals["accuracy"] = std::numeric_limits<double>::infinity();
  const auto infinite = Json::Parse(ReportJson({&data, 1}, PageLanguage::kEn));
  EXPECT_EQ(FirstRun(*infinite, "figures/evals"), R"([{"metric":"accuracy","value":null}])");
}

TEST_F(ReportTest, NonFiniteEvaluationIsNull) {
  run_.Event("001-812", 62, "eval", R"(,"step":5,"metric":"accuracy","value":null,"dur_s":0.5)");
  EXPECT_EQ(FirstRun(Written(), "figures/evals"), R"([{"metric":"accuracy","value":null}])");
}

TEST_F(ReportTest, RunWithoutEventsHasReport) {
  const RunFiles run;
  run.Append("attempts/000-1/env.json", "{");
  run.Append("attempts/000-1/events.jsonl", "");
  run.Append("STATUS.json", StrCat(R"({"ts":")", At(79), R"(","state":"starting"})"));
  const Json page = Written({&run});
  EXPECT_EQ(FirstRun(page, "phase"), R"("starting")");
  EXPECT_EQ(FirstRun(page, "next_command"), StrCat("\"gaccd status --watch ", run.path(), "\""));
  EXPECT_THAT(FirstRun(page, "notes"), HasSubstr("attempt 000-1 has no events"));
  EXPECT_EQ(FirstRun(page, "figures/attempts"), "1");
  EXPECT_THAT(FirstRun(page, "advice/0/en"), HasSubstr("nothing to do"));
  EXPECT_THAT(FirstRun(page, "advice/0/zh"), HasSubstr("无需操作：正在运行"));
  EXPECT_EQ(FirstRun(page, "curves/loss/pieces"), "[]");
  EXPECT_EQ(FirstRun(page, "plan"), "null");
}

TEST_F(ReportTest, ShowsFiguresAndJobDifferencesOfSeveralRuns) {
  RunFiles other;
  other.Event("000-9", 0, "run_start");
  for (int step = 1; step <= 2000; ++step) other.Event("000-9", 5, "step", Step(step, 7 - step));
  other.Append("attempts/000-9/job.txtpb", "lr: 0.2\nepochs: 4\n");
  other.Append("STATUS.json", StrCat(R"({"ts":")", At(79), R"(","state":"running","step":3})"));
  const Json page = Written({&run_, &other});
  EXPECT_EQ(JsonAt(page, "runs/0/job_changes"), "[]");
  EXPECT_EQ(JsonAt(page, "runs/1/job_changes"), R"([{"name":"","before":"epochs: 3","after":""},)"
                                                R"({"name":"","before":"","after":"epochs: 4"}])");
  EXPECT_EQ(JsonAt(page, "runs/1/last_step"), "2000");
  EXPECT_EQ(JsonAt(page, "runs/1/plan"), "nothing") << "it is written of one run alone";
  EXPECT_EQ(JsonAt(page, "runs/1/curves/loss/width"), "8");
  const Json many = Written({&other, &other, &other, &other, &other, &other, &other, &other});
  EXPECT_EQ(JsonAt(many, "runs/7/curves/loss/width"), "16") << "1600 / 8 bins";
  EXPECT_THAT(RunReportCommand({.folders = {run_.path(), other.path()}}),
              IsError(ErrorKind::kUsage, "--out"));
}

TEST_F(ReportTest, RunsOfOneNameAreNamedByTheirPaths) {
  const RunFiles folder;
  for (const char* run : {"x/a", "y/a", "y/b"}) {
    folder.Append(StrCat(run, "/attempts/000-9/events.jsonl"), RunFiles::Line(0, "run_start", 1));
  }
  const std::string x = folder.Path("x/a");
  const std::string y = folder.Path("y/a");
  testing::internal::CaptureStdout();
  const Status status =
      RunReportCommand({.folders = {x, y, folder.Path("y/b")}, .out = folder.Path("report.html")});
  (void)testing::internal::GetCapturedStdout();
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string page = *ReadSmallFile(folder.Path("report.html"), ErrorKind::kData);
  for (const std::string& name : {x, y, std::string("b")}) {
    EXPECT_THAT(page, HasSubstr(StrCat(R"("name":")", name, "\"")));
  }
}

TEST_F(ReportTest, NamesBestEvaluationAndExportCommand) {
  RunFiles run;
  run.Event("000-9", 0, "run_start");
  run.Append("STATUS.json", StrCat(R"({"ts":")", At(70), R"(","state":"done","exit":0,"step":9,)",
                                   R"("best_metric":"mae","best_value":0.25,"best_step":6})"));
  const auto said = [&](const char* name) { return FirstRun(Written({&run}), name); };
  const std::string command =
      StrCat("\"gaccd ckpt export ", run.path(), " --best --out=best.safetensors\"");
  EXPECT_EQ(said("best"), R"({"metric":"mae","value":0.25,"step":6,"is_saved":false})");
  EXPECT_EQ(said("export_best"), "null");
  EXPECT_EQ(said("next_command"),
            StrCat("\"gaccd ckpt export ", run.path(), " --out=weights.safetensors\""));
  const SmallRun saved{.best_step = 6};
  ASSERT_TRUE(
      SaveSteps(saved, 1, {.folder = run.Path("ckpt"), .keep = {.best = true}}, {6, 9}).ok());
  EXPECT_EQ(said("best/is_saved"), "true");
  EXPECT_EQ(said("export_best"), command);
  EXPECT_EQ(said("next_command"), command);
  std::filesystem::remove(run.Path("STATUS.json"));  // a better one since the last checkpoint
  run.Append("STATUS.json", StrCat(R"({"ts":")", At(70), R"(","state":"running","step":12,)",
                                   R"("best_metric":"mae","best_value":0.125,"best_step":12})"));
  EXPECT_EQ(said("best/is_saved"), "false");
}

// "runs/plan/mode" of every member in it.
void AddMembers(const Json& page, const std::string& place, std::set<std::string>* members) {
  if (page.array() != nullptr) {
    for (const Json& one : *page.array()) AddMembers(one, place, members);
  }
  if (page.object() == nullptr) return;
  for (const auto& [name, value] : *page.object()) {
    members->insert(StrCat(place, "/", name));
    AddMembers(value, StrCat(place, "/", name), members);
  }
}

// A developer of the page sees in its sample data what there is.
TEST_F(ReportTest, SamplePageHasEveryMember) {
  run_.Event("001-812", 62, "log", R"(,"msg":"a warning")");
  run_.Append("attempts/001-812/verdict.json",
              RunFiles::Line(63, "verdict", 1, R"(,"verdict":"fail","suspect_hosts":"n3")"));
  std::set<std::string> written;
  AddMembers(Written(), "", &written);
  const std::string_view page = PageHtml();
  const std::size_t begin = page.find('{', page.find("id=\"data\""));
  auto sample = Json::ParseObject(page.substr(begin, page.find("</script>", begin) - begin));
  ASSERT_TRUE(sample);
  std::set<std::string> members;
  AddMembers(*sample, "", &members);
  EXPECT_EQ(members.erase("/sample"), 1U);
  std::vector<std::string> only_in_one;
  std::ranges::set_symmetric_difference(members, written, std::back_inserter(only_in_one));
  EXPECT_THAT(only_in_one, ElementsAre());
}

TEST_F(ReportTest, WritesToRunFolderOrGivenPath) {
  testing::internal::CaptureStdout();
  ASSERT_TRUE(RunReportCommand({.folders = {run_.path()}}).ok());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), run_.path() + "/report.html\n");
  const std::string page = *ReadSmallFile(run_.Path("report.html"), ErrorKind::kData);
  EXPECT_TRUE(page.starts_with("<!doctype html>"));
  const ReportData data = Read(run_);
  EXPECT_THAT(page, HasSubstr("\"run\":\"a \\u003c/script>"));
  EXPECT_THAT(page, Not(HasSubstr("\"sample\""))) << "the data of the run is in its place";
  EXPECT_THAT(RunReportCommand({.folders = {run_.Path("attempts")}}),
              IsError(ErrorKind::kUsage, "is not a run folder"));
}

}  // namespace
}  // namespace gaccd
