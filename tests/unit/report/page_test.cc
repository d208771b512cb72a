// Reports of runs that are written by hand: what the page says is what the events say.
#include "daemon/report/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "collectives/base/files.h"
#include "daemon/report/attempt_changes.h"
#include "daemon/report/format_number.h"
#include "daemon/report/html.h"
#include "daemon/report/report_command.h"
#include "tests/unit/base/status_matchers.h"
#include "tests/unit/checkpoint/small_run.h"
#include "tests/unit/watch/run_files.h"

namespace gaccd {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

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
               R"(,"version":"0.1.0","nodes":30,"model":"mlp","flops_per_sample":2e9)");
    run_.Event(first, 1, "plan", kPlan);
    for (int step = 1; step <= 4; ++step) {
      run_.Event(first, 10 + 2 * step, "step", Step(step, 4.0625 / step));
    }
    run_.Event(first, 19, "save", R"(,"step":2,"ok":true,"bytes":1000,"stall_s":0.5,"dur_s":0.75)");
    run_.Crash(first, 20, 5, R"(,"exit":74,"msg":"full <disk>")");
    run_.Append("attempts/000-812/env.json", R"({"NCCL_DEBUG":"WARN","SLURM_JOB_ID":"812"})");
    run_.Append("attempts/000-812/job.txtpb", "lr: 0.1\nepochs: 3\n");
    const std::string second = "001-812";
    run_.Event(
        second, 40, "run_start",
        R"(,"version":"0.1.0","nodes":29,"model":"mlp","flops_per_sample":2e9,"gpu":"H100")");
    run_.Event(second, 41, "plan", kPlan);
    run_.Event(second, 44, "resume", R"(,"step":2,"dur_s":1.5)");
    for (int step = 3; step <= 5; ++step) {
      run_.Event(second, 40 + 4 * step, "step",
                 Step(step, 1.015625 / step) + R"(,"mfu_ratio":0.41)");
    }
    run_.Event(second, 61, "eval", R"(,"step":5,"metric":"accuracy","value":0.8125,"dur_s":0.5)");
    run_.Append("attempts/001-812/env.json", R"({"NCCL_DEBUG":"INFO","SLURM_JOB_ID":"812"})");
    run_.Append("attempts/001-812/job.txtpb", "lr: 0.2\nepochs: 3\n");
    run_.Append("STATUS.json",
                StrCat(R"({"ts":")", At(70), R"(","run":")", kEvil,
                       R"(","job":"812","world":240,"step":5,"steps_total":9,)",
                       R"("attempt_dir":"attempts/001-812","state":"failed","exit":74,)",
                       R"("reason":")", kEvil, "\"}"));
  }

  static ReportData Read(const RunFiles& run) {
    auto story = ReadReportData(run.path(), *ParseTimestamp(At(80)));
    EXPECT_TRUE(story.ok()) << story.status().message();
    return *std::move(story);
  }
  std::string Page(PageLanguage language = PageLanguage::kBoth) {
    const ReportData story = Read(run_);
    return ReportPage({&story, 1}, language);
  }

  RunFiles run_;
};

// The points of all lines of this name, in the order of the page.
std::vector<std::pair<std::int64_t, double>> PointsOf(const std::string& page,
                                                      const std::string& name) {
  const std::regex line("data-curve='" + name + "' data-x='([^']*)' data-y='([^']*)'");
  std::vector<std::pair<std::int64_t, double>> points;
  for (std::sregex_iterator it(page.begin(), page.end(), line), end; it != end; ++it) {
    std::istringstream steps((*it)[1].str());
    std::istringstream values((*it)[2].str());
    std::int64_t step = 0;
    double value = 0;
    while (steps >> step && values >> value) points.emplace_back(step, value);
  }
  return points;
}

// The value in a line that is made of it.
double Written(double value) { return std::stod(StrCat(value)); }

TEST_F(ReportTest, CurvesCarryTheValuesOfTheEvents) {
  using Point = std::pair<std::int64_t, double>;
  const std::string page = Page();
  // Of an attempt, what was done again comes first.
  EXPECT_THAT(PointsOf(page, "loss"),
              ElementsAre(Point(3, Written(4.0625 / 3)), Point(4, Written(4.0625 / 4)),
                          Point(1, 4.0625), Point(2, 2.03125), Point(3, Written(1.015625 / 3)),
                          Point(4, Written(1.015625 / 4)), Point(5, 0.203125)));
  EXPECT_THAT(PointsOf(page, "grad_norm"),
              ElementsAre(Point(3, 1.25), Point(4, 1.5), Point(1, 0.75), Point(2, 1),
                          Point(3, 1.25), Point(4, 1.5), Point(5, 1.75)));
  EXPECT_THAT(PointsOf(page, "eval/accuracy"), ElementsAre(Point(5, 0.8125)));
  EXPECT_EQ(PointsOf(page, "lr").size(), 7);
  EXPECT_EQ(PointsOf(page, "dur_p99_s").back(), Point(5, 2.5));
}

TEST_F(ReportTest, TellsTheStoryOfTheRun) {
  const std::string page = Page(PageLanguage::kEn);
  EXPECT_THAT(page, HasSubstr("hero failed"));
  EXPECT_THAT(page, HasSubstr(StrCat("gaccd doctor ", run_.path())));
  for (const char* batch : {">2,400<", ">3,072<", ">4,800<", "-21.9 %", "+56.2 %",
                            "<b>192</b> ranks take <b>13</b> samples: <b>7 + 6</b>"}) {
    EXPECT_THAT(page, HasSubstr(batch)) << "the plan";
  }
  EXPECT_THAT(page, HasSubstr("exactly in <b>7</b> of <b>7</b> updates"));
  EXPECT_THAT(page, HasSubstr("<b>2</b> updates were repeated"));
  EXPECT_THAT(page,
              HasSubstr("<dt>model FLOP / s</dt><dd>48.0G<small>last: <b>41.0 %</b> of the peak "
                        "of <b>H100</b></small>"));
  EXPECT_THAT(page, HasSubstr("full &lt;disk&gt;"));
  EXPECT_THAT(page, HasSubstr("<td>NCCL_DEBUG</td><td class=t>WARN</td><td class=t>INFO</td>"));
  EXPECT_THAT(page, HasSubstr("<td>nodes</td><td class=t>30</td><td class=t>29</td>"));
  EXPECT_THAT(page, HasSubstr("<td>job.txtpb</td><td class=t>lr: 0.1</td><td class=t></td>"));
  EXPECT_THAT(page, Not(HasSubstr("<td>SLURM_JOB_ID"))) << "it is the same";
  EXPECT_THAT(page, HasSubstr("<pre>lr: 0.2\nepochs: 3\n</pre>"));
}

TEST(LineChangesTest, CountHowOftenALineIsThere) {
  std::vector<std::string> said;
  for (const Change& one : LineChanges("a\nb\na\n\n", "c\na\n")) {
    said.push_back(StrCat("-", one.before, " +", one.after));
  }
  EXPECT_THAT(said, ElementsAre("-b +", "-a +", "- +c"));
}

TEST_F(ReportTest, NothingOfARunIsMarkup) {
  const std::string page = Page();
  EXPECT_THAT(page, Not(HasSubstr("<script>alert")));
  EXPECT_THAT(page, HasSubstr("a &lt;/script&gt;&lt;script&gt;alert(1)"));
  EXPECT_EQ(EscapeHtml("<a href=\"x\" b='y'>&\x01\x7f\xff\n"),
            "&lt;a href=&quot;x&quot; b=&#39;y&#39;&gt;&amp;\xEF\xBF\xBD\n");
}

TEST_F(ReportTest, NeedsNoNetwork) {
  const std::string page = Page();
  for (const char* reference : {"http:", "https:", "src=", "@import", "url(", "<link"}) {
    EXPECT_THAT(page, Not(HasSubstr(reference)));
  }
}

TEST_F(ReportTest, HasTheLanguagesThatWereAskedFor) {
  const std::string zh = "梯度范数";
  EXPECT_THAT(Page(), HasSubstr(zh));
  EXPECT_THAT(Page(), HasSubstr("gradient norm"));
  EXPECT_THAT(Page(PageLanguage::kEn), Not(HasSubstr(zh)));
  EXPECT_THAT(Page(PageLanguage::kZh), HasSubstr(zh));
  EXPECT_THAT(Page(PageLanguage::kZh), Not(HasSubstr("gradient norm")));
}

TEST_F(ReportTest, AChinesePageHasNoWordThatIsOnlyEnglish) {
  run_.Event("001-812", 62, "save", R"(,"step":5,"ok":true,"bytes":1,"dur_s":1)");
  run_.Event("001-812", 63, "save", R"(,"step":5,"ok":false,"reason":"disk","dur_s":1)");
  run_.Event("001-812", 64, "eval", R"(,"step":5,"metric":"loss","value":1,"dur_s":1)");
  run_.Event("001-812", 65, "step", Step(6, 1) + R"(,"straggler_rank":3,"straggler_phase":"data")");
  run_.Append("ledger.jsonl", R"({"attempt":"000-812","exit":69,"next":"requeue"})"
                              "\n");
  run_.Event("001-812", 3000, "verdict", R"(,"verdict":"norequeue","exit":74)");
  RunFiles other;
  other.Event("000-9", 0, "run_start");
  const ReportData stories[] = {Read(run_), Read(other)};
  const auto page = [&](PageLanguage language) {
    return StrCat(Page(language), ReportPage(stories, language));
  };
  const std::string en = page(PageLanguage::kEn);
  const std::string zh = page(PageLanguage::kZh);
  for (const char* word : {">ok<", ">failed: ", "norequeue", ">floor<", ">exact<", ">ceil<",
                           ">data<", "· job 812", "eval accuracy", ">evaluation<"}) {
    EXPECT_THAT(en, HasSubstr(word));
    EXPECT_THAT(zh, Not(HasSubstr(word)));
  }
  EXPECT_EQ(FormatSeconds(20 * 86400), "20 d");
}

TEST_F(ReportTest, AReasonHasARowOfItsOwnThatAPhoneShows) {
  run_.Event("001-812", 3000, "verdict", R"(,"verdict":"fail","exit":74,"reason":"no <room>")");
  EXPECT_THAT(Page(PageLanguage::kEn),
              HasSubstr("<tr class=why><td colspan=6><div>no &lt;room&gt;</div></td></tr>"));
  EXPECT_THAT(Page(), HasSubstr(".why div{position:sticky"));
}

TEST_F(ReportTest, SaysWhatIsWrongWithTheFiles) {
  run_.Event("003-812", 50, "run_start");  // 002 is missing, and 001 ends at 61
  run_.Append("attempts/003-812/events.jsonl", R"({"v":1,"ts":"2026)");
  const std::string page = Page();
  EXPECT_THAT(page, HasSubstr("attempt 002-812 has no folder"));
  EXPECT_THAT(page, HasSubstr("attempt 003-812: its last line is cut off"));
  EXPECT_THAT(page, HasSubstr("both ran at once"));
}

TEST_F(ReportTest, DamagedValuesAreNoPoints) {
  run_.Event("001-812", 62, "step", R"(,"step":6,"loss":null,"loss_finite":false,"dur_s":-1)");
  run_.Event("001-812", 63, "step", R"(,"step":9000000000000000000,"loss":1,"dur_s":1)");
  run_.Event("001-812", 64, "step", R"(,"step":7,"loss":"x","dur_s":1e999)");
  run_.Event("001-812", 65, "eval", R"(,"step":-4,"metric":"accuracy","value":1)");
  const std::string page = Page();
  EXPECT_EQ(PointsOf(page, "loss").size(), 7);
  EXPECT_EQ(PointsOf(page, "eval/accuracy").size(), 1);
}

TEST_F(ReportTest, ARunWithoutEventsHasAPage) {
  const RunFiles run;
  run.Append("attempts/000-1/env.json", "{");
  run.Append("STATUS.json", StrCat(R"({"ts":")", At(79), R"(","state":"starting"})"));
  const ReportData story = Read(run);
  const std::string page = ReportPage({&story, 1}, PageLanguage::kEn);
  EXPECT_THAT(page, HasSubstr("hero starting"));
  EXPECT_THAT(page, HasSubstr("gaccd status --watch"));
  EXPECT_THAT(page, HasSubstr("attempt 000-1 has no events"));
  EXPECT_THAT(page, HasSubstr("nothing to do"));
  const std::string zh = ReportPage({&story, 1}, PageLanguage::kZh);
  EXPECT_THAT(zh, HasSubstr("无需操作：正在运行"));
  EXPECT_THAT(zh, Not(HasSubstr("nothing to do")));
}

TEST_F(ReportTest, SeveralRunsAreSideBySide) {
  RunFiles other;
  other.Event("000-9", 0, "run_start");
  for (int step = 1; step <= 3; ++step)
    other.Event("000-9", 5 + step, "step", Step(step, 7 - step));
  other.Append("attempts/000-9/job.txtpb", "lr: 0.2\nepochs: 4\n");
  other.Append("STATUS.json", StrCat(R"({"ts":")", At(79), R"(","state":"running","step":3})"));
  const ReportData stories[] = {Read(run_), Read(other)};
  const std::string page = ReportPage(stories, PageLanguage::kEn);
  using Point = std::pair<std::int64_t, double>;
  EXPECT_THAT(page, HasSubstr("<del>- epochs: 3</del>\n<ins>+ epochs: 4</ins>"));
  EXPECT_THAT(page, Not(HasSubstr("- lr")));
  // loss, gradient norm, learning rate and seconds
  const auto points = PointsOf(page, stories[1].folder_name);
  ASSERT_EQ(points.size(), 4 * 3);
  EXPECT_EQ(points[2], Point(3, 4));
  EXPECT_THAT(RunReportCommand({.folders = {run_.path(), other.path()}}),
              IsError(ErrorKind::kUsage, "--out"));
}

// A line of one point is not seen: it is a dot.
TEST_F(ReportTest, ACurveOfOnePointIsADot) {
  RunFiles runs[2];
  for (RunFiles& run : runs) {
    run.Event("000-9", 0, "run_start");
    run.Event("000-9", 5, "step", Step(1, 6));
    run.Event("000-9", 6, "eval", R"(,"step":1,"metric":"accuracy","value":0.5,"dur_s":0.5)");
    run.Append("STATUS.json", StrCat(R"({"ts":")", At(79), R"(","state":"running","step":1})"));
  }
  const ReportData stories[] = {Read(runs[0]), Read(runs[1])};
  const std::string one = ReportPage({stories, 1}, PageLanguage::kEn);
  EXPECT_THAT(one, HasSubstr("class='line c0 dots' data-curve='loss' data-x='1' data-y='6' "
                             "d='M500.0 150.0h0'"));
  EXPECT_THAT(one, HasSubstr("<span class=x style='left:50.0%'>1</span>")) << "the update";
  EXPECT_THAT(one, testing::ContainsRegex("class='area p0' d='M0.0 [0-9.]+L1000.0 "));
  const std::string both = ReportPage(stories, PageLanguage::kEn);
  // loss, accuracy, gradient norm, learning rate and seconds of both
  const std::regex dot(" dots' data-curve='[^']*' data-x='1'");
  EXPECT_EQ(std::distance(std::sregex_iterator(both.begin(), both.end(), dot), {}), 2 * 5);
}

TEST_F(ReportTest, TheBestEvaluationIsNamedWithTheCommandThatExportsIt) {
  RunFiles run;
  run.Event("000-9", 0, "run_start");
  run.Append("STATUS.json", StrCat(R"({"ts":")", At(70), R"(","state":"done","exit":0,"step":9,)",
                                   R"("best_metric":"mae","best_value":0.25,"best_step":6})"));
  const auto page = [&] {
    const ReportData story = Read(run);
    return ReportPage({&story, 1}, PageLanguage::kEn);
  };
  const std::string command = StrCat("gaccd ckpt export ", run.path(), " --best");
  EXPECT_THAT(page(), HasSubstr("<b>mae</b> <b>0.25</b>, after update <b>6</b>; no checkpoint"));
  EXPECT_THAT(page(), Not(HasSubstr(command)));
  const SmallRun saved{.best_step = 6};
  ASSERT_TRUE(
      SaveSteps(saved, 1, {.folder = run.Path("ckpt"), .keep = {.best = true}}, {6, 9}).ok());
  EXPECT_THAT(page(), HasSubstr(command));
  EXPECT_THAT(page(), Not(HasSubstr("no checkpoint")));
  const ReportData stories[] = {Read(run), Read(run)};
  EXPECT_THAT(ReportPage(stories, PageLanguage::kEn), HasSubstr("<td>mae 0.25 @ 6</td>"));
  std::filesystem::remove(run.Path("STATUS.json"));  // a better one since the last checkpoint
  run.Append("STATUS.json", StrCat(R"({"ts":")", At(70), R"(","state":"running","step":12,)",
                                   R"("best_metric":"mae","best_value":0.125,"best_step":12})"));
  EXPECT_THAT(page(), HasSubstr("no checkpoint"));
}

TEST_F(ReportTest, IsAFileInTheFolderOrWhereItIsAskedFor) {
  testing::internal::CaptureStdout();
  ASSERT_TRUE(RunReportCommand({.folders = {run_.path()}}).ok());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), run_.path() + "/report.html\n");
  EXPECT_TRUE(ReadStart(run_.Path("report.html"), 20)->starts_with("<!doctype html>"));
  EXPECT_THAT(RunReportCommand({.folders = {run_.Path("attempts")}}),
              IsError(ErrorKind::kUsage, "is no run folder"));
}

}  // namespace
}  // namespace gaccd
