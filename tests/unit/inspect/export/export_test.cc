// Events of a run in every format, read back by code that did not write them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>
#include <ctime>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "collectives/base/output.h"
#include "daemon/checkpoint/crc32c.h"
#include "daemon/inspect/export/exports.h"
#include "daemon/inspect/export/prometheus.h"
#include "daemon/inspect/watch/event_stream.h"
#include "proto/tensorboard.pb.h"
#include "tests/support/run_files.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using nlohmann::json;
using testing::Pair;

std::string StepKeys(int step, double loss) {
  return StrCat(R"(,"step":)", step, R"(,"samples":48,"samples_total":)", 48 * step, R"(,"loss":)",
                loss,
                R"(,"loss_finite":true,"grad_norm":null,"grad_finite":false,"unit":"tokens",)",
                R"("divisor":100,"lr":0.1,"skipped":true,"dur_s":2,"data_s":0.5,"fwd_bwd_s":1,)",
                R"("reduce_s":0.25,"opt_s":0.25,"wait_s":0.125,"straggler_host":"n3")");
}

class ExportTest : public testing::Test {
 protected:
  // Attempt 0: updates 1 to 3, a save after 2, then it is lost. Attempt 1 continues from 2.
  void SetUp() override {
    const std::string first = "000-812";
    run_.Event(first, 0, "run_start", R"(,"version":"0.1.0","git":"abc","model":"a\"b\nc")");
    run_.Event(first, 1, "plan", R"(,"target_batch":3072,"effective_batch":3072,"accum_steps":2)");
    run_.Event(first, 12, "step", StepKeys(1, 4));
    run_.Event(first, 14, "step", StepKeys(2, 3));
    run_.Event(first, 15, "save", R"(,"step":2,"ok":true,"bytes":1000,"stall_s":0.5,"dur_s":0.75)");
    run_.Event(first, 16, "step", StepKeys(3, 2));
    run_.Event(first, 17, "log", R"(,"msg":"=1+1, \"quoted\"")");
    run_.Crash(first, 18, 5, R"(,"exit":74,"msg":"full")");
    const std::string second = "001-812";
    run_.Event(second, 40, "run_start", R"(,"version":"0.1.0","git":"abc")");
    run_.Event(second, 44, "resume", R"(,"step":2,"dur_s":1.5)");
    run_.Event(second, 50, "step", StepKeys(3, 1.5));
    run_.Event(second, 51, "eval", R"(,"step":3,"metric":"loss","value":1.25,"dur_s":0.5)");
    run_.Event(second, 51, "eval", R"(,"step":3,"metric":"accuracy","value":0.75,"dur_s":0.5)");
  }

  std::string Export(ExportFormat format, const std::string& attempt = "") {
    testing::internal::CaptureStdout();
    const Status status =
        RunExportCommand({.folder = run_.path(), .attempt = attempt, .format = format});
    std::string text = testing::internal::GetCapturedStdout();
    EXPECT_TRUE(status.ok()) << status.message();
    return text;
  }
  static RunFigures Sum(const RunFiles& run) {
    auto stream = ValueOrThrow(EventStream::Open(run.path()));
    FigureSum sum;
    Event event;
    while (stream.Next(&event)) sum.Add(event);
    return std::move(sum).Finish(stream.attempts().size());
  }
  void WriteStatus(const RunFiles& run, std::string_view more) {
    const auto seconds = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
    char now[64];
    std::strftime(now, sizeof(now), "%FT%T.000000Z", std::gmtime(&seconds));
    run.Append("STATUS.json", StrCat(R"({"ts":")", now, R"(","job":"812","world":240,"step":3,)",
                                     R"("steps_total":9,"attempt_dir":"attempts/001-812",)",
                                     R"("state":"running")", more, "}"));
  }

  RunFiles run_;
};

TEST_F(ExportTest, CsvHasRowPerEventAndColumnPerKey) {
  std::istringstream csv(Export(ExportFormat::kCsv));
  std::vector<std::string> rows;
  for (std::string row; std::getline(csv, row);) rows.push_back(row);
  ASSERT_EQ(rows.size(), 1 + 13 + 1) << "one text has a line break in it";
  EXPECT_TRUE(rows[0].starts_with("attempt_dir,v,ts,run,job,attempt,rank,host,ev,lvl,seq,version"));
  EXPECT_TRUE(rows[0].ends_with("\r"));
  EXPECT_THAT(rows[1], HasSubstr(R"(,"a""b)"));
  const std::string all = Export(ExportFormat::kCsv);
  EXPECT_THAT(all, HasSubstr("\"=1+1, \"\"quoted\"\"\""));
  // loss, loss_finite, grad_norm (null), grad_finite
  EXPECT_THAT(all, HasSubstr(",48,144,1.5,true,,false,tokens,100,0.1,true,2,0.5,1,"));
  EXPECT_THAT(Export(ExportFormat::kCsv, "1"), Not(HasSubstr("000-812")));
}

TEST_F(ExportTest, ChromeTraceHasUpdatesWithTheirPhases) {
  const json trace = json::parse(Export(ExportFormat::kChromeTrace));
  int updates = 0;
  int evaluations = 0;
  for (const json& event : trace["traceEvents"]) {
    if (event["name"] == "eval") ++evaluations;
    if (event["name"] == "update 3" && event["pid"] == 2) {
      ++updates;
      EXPECT_EQ(event["ph"], "X");
      EXPECT_EQ(event["dur"], 2e6);
      EXPECT_EQ(event["ts"], SecondsSinceEpoch(*ParseTimestamp(At(48))) * 1e6);
      EXPECT_EQ(event["args"]["samples_total"], 144);
    }
    if (event["name"] == "optimizer" && event["pid"] == 2) {
      EXPECT_EQ(event["ts"], SecondsSinceEpoch(*ParseTimestamp(At(49))) * 1e6 + 0.75e6);
    }
    if (event["name"] == "rank 5: failure") ++updates;
  }
  EXPECT_EQ(updates, 2);
  EXPECT_EQ(evaluations, 1) << "of two metrics";
  const TempFolder empty;
  std::filesystem::create_directories(empty.Path("attempts/000-1"));
  testing::internal::CaptureStdout();
  (void)RunExportCommand({.folder = empty.path(), .format = ExportFormat::kChromeTrace});
  EXPECT_TRUE(json::parse(testing::internal::GetCapturedStdout())["traceEvents"].empty());
}

TEST_F(ExportTest, OtlpLinesAreRequestsWithGauges) {
  std::istringstream lines(Export(ExportFormat::kOtlpJson));
  std::map<std::string, std::vector<double>> values;
  std::vector<std::string> attempts;
  for (std::string line; std::getline(lines, line);) {
    const json resource = json::parse(line)["resourceMetrics"][0];
    attempts.push_back(resource["resource"]["attributes"][2]["value"]["stringValue"]);
    for (const json& metric : resource["scopeMetrics"][0]["metrics"]) {
      for (const json& point : metric["gauge"]["dataPoints"]) {
        EXPECT_TRUE(point["timeUnixNano"].is_string()) << "as protobuf's JSON has 64-bit numbers";
        values[metric["name"]].push_back(point["asDouble"]);
      }
    }
  }
  EXPECT_THAT(attempts, ElementsAre("000-812", "001-812"));
  EXPECT_THAT(values["gaccd.loss"], ElementsAre(4, 3, 2, 1.5));
  EXPECT_THAT(values["gaccd.eval.accuracy"], ElementsAre(0.75));
  EXPECT_THAT(values["gaccd.eval.duration"], ElementsAre(0.5)) << "of its lines";
  EXPECT_FALSE(values.contains("gaccd.gradient_norm")) << "it is not finite";
}

// The messages of a TFRecord; checks every CRC.
std::vector<proto::tensorboard::Event> ReadRecords(const std::string& path) {
  const std::string bytes = *ReadStart(path, 1 << 20);
  const auto number = [&]<typename T>(std::size_t at, T) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  };
  const auto check = [&](std::size_t at, std::size_t size) {
    const std::uint32_t crc = Crc32cByTable(std::as_bytes(std::span(bytes).subspan(at, size)));
    EXPECT_EQ(number(at + size, std::uint32_t{}), ((crc >> 15) | (crc << 17)) + 0xa282ead8U);
  };
  std::vector<proto::tensorboard::Event> events;
  for (std::size_t at = 0; at < bytes.size();) {
    const auto size = static_cast<std::size_t>(number(at, std::uint64_t{}));
    check(at, 8);
    check(at + 12, size);
    EXPECT_TRUE(events.emplace_back().ParseFromString(bytes.substr(at + 12, size)));
    at += 12 + size + 4;
  }
  return events;
}

TEST_F(ExportTest, PrometheusHasNoAttempt) {
  EXPECT_THAT(RunExportCommand(
                  {.folder = run_.path(), .attempt = "1", .format = ExportFormat::kPrometheus}),
              IsError(ErrorKind::kUsage, "expected no --attempt"));
}

TEST_F(ExportTest, TensorboardHasFilePerAttempt) {
  const ExportRequest request{
      .folder = run_.path(), .format = ExportFormat::kTensorboard, .out = run_.Path("tb")};
  EXPECT_THAT(RunExportCommand({.folder = run_.path(), .format = request.format}),
              IsError(ErrorKind::kUsage, "--out"));
  for (int again = 0; again < 2; ++again) ASSERT_TRUE(RunExportCommand(request).ok());
  const auto files = *ListFolder(run_.Path("tb/001-812"), 9);
  ASSERT_EQ(files.size(), 1);
  EXPECT_EQ(files[0], "events.out.tfevents.1795143640.n1.gaccd");
  const auto events = ReadRecords(run_.Path("tb/001-812/" + files[0]));
  ASSERT_EQ(events.size(), 1 + 1 + 2);
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_EQ(events[1].step(), 3);
  EXPECT_EQ(events[1].wall_time(), SecondsSinceEpoch(*ParseTimestamp(At(50))));
  EXPECT_EQ(events[1].summary().value(0).tag(), "loss");
  EXPECT_EQ(events[1].summary().value(0).simple_value(), 1.5F);
  EXPECT_EQ(events[3].summary().value(0).tag(), "eval/accuracy");
}

// Resumed from another run at update 20, and then begun anew.
TEST_F(ExportTest, UpdatesOfAnotherRunAreNotLost) {
  RunFiles run;
  run.Event("000-812", 0, "run_start");
  run.Event("000-812", 1, "resume", R"(,"step":20,"dur_s":1)");
  for (int i = 0; i < 2; ++i) run.Event("000-812", 4 + 2 * i, "step", StepKeys(21 + i, 4));
  run.Event("001-812", 20, "run_start");
  run.Event("001-812", 24, "step", StepKeys(1, 4));
  const RunFigures sum = Sum(run);
  EXPECT_EQ(sum.updates, 3);
  EXPECT_EQ(sum.lost_updates, 2);
}

TEST_F(ExportTest, FiguresAreSumsOverAllAttempts) {
  const RunFigures sum = Sum(run_);
  EXPECT_EQ(sum.attempts, 2);
  EXPECT_EQ(sum.updates, 4);
  EXPECT_EQ(sum.lost_updates, 1);
  EXPECT_EQ(sum.samples, 4 * 48);
  EXPECT_EQ(sum.tokens, 400);
  EXPECT_EQ(sum.skipped, 4);
  EXPECT_EQ(sum.nonfinite_gradients, 4);
  EXPECT_EQ(sum.nonfinite_losses, 0);
  EXPECT_THAT(sum.errors, ElementsAre(Pair("io", 1)));
  EXPECT_THAT(sum.stragglers, ElementsAre(Pair("n3", 4)));
  EXPECT_THAT(sum.evals, ElementsAre(Pair("accuracy", 0.75), Pair("loss", 1.25)));
  EXPECT_EQ(sum.phase_s.at("eval"), 0.5);
  EXPECT_EQ(sum.phase_s.at("data"), 2);
  EXPECT_EQ(sum.update_s.below[4], 0);  // at most 1 s
  EXPECT_EQ(sum.update_s.below[5], 4);  // at most 2 s
  EXPECT_EQ(sum.update_s.count, 4);
  // 0..51: 4 updates of 2 s, each 0.5 s for data; one of them was done again.
  EXPECT_EQ(sum.elapsed_s, 51);
  EXPECT_EQ(sum.good_s, 4.5);
  const auto bad = [&](Badput kind) { return sum.badput_s[static_cast<std::size_t>(kind)]; };
  EXPECT_EQ(bad(Badput::kInit), 10 + 6.5);
  EXPECT_EQ(bad(Badput::kData), 2);
  EXPECT_EQ(bad(Badput::kCheckpointSave), 0.5);
  EXPECT_EQ(bad(Badput::kCheckpointLoad), 1.5);
  EXPECT_EQ(bad(Badput::kLostProgress), 1.5);
  EXPECT_EQ(bad(Badput::kRecovery), 22);
  EXPECT_EQ(bad(Badput::kOther), 51 - 4.5 - 16.5 - 2 - 0.5 - 1.5 - 1.5 - 22);
}

// As slurm/launch leaves it where srun failed.
TEST_F(ExportTest, AttemptWithoutEventsIsRestart) {
  run_.Append("attempts/002-812/srun.err", "srun: error");
  run_.Append("ledger.jsonl", R"({"attempt":"002-812","exit":71,"verdict":"requeue"})"
                              "\n");
  EXPECT_EQ(Sum(run_).attempts, 3);
  WriteStatus(run_, "");
  EXPECT_THAT(Export(ExportFormat::kPrometheus),
              testing::ContainsRegex("gaccd_restarts_total\\{[^}]*\\} 2\n"));
}

// A second job in the folder: before and after its script has noticed.
TEST_F(ExportTest, RefusedStartIsNoRestart) {
  WriteStatus(run_, "");
  run_.Append("attempts/000-813/srun.err", "");
  EXPECT_THAT(Export(ExportFormat::kPrometheus),
              testing::ContainsRegex("gaccd_restarts_total\\{[^}]*\\} 1\n"));
  run_.Append("ledger.jsonl", R"({"attempt":"000-813","exit":78,"verdict":"fail"})"
                              "\n");
  EXPECT_THAT(Export(ExportFormat::kPrometheus),
              testing::ContainsRegex("gaccd_restarts_total\\{[^}]*\\} 1\n"));
}

TEST_F(ExportTest, ClockSetBackBetweenAttemptsKeepsGoodput) {
  RunFiles run;
  run.Event("000-812", 100, "run_start");
  run.Event("000-812", 110, "step", StepKeys(1, 4));
  run.Event("001-812", 60, "run_start");
  run.Event("001-812", 70, "step", StepKeys(2, 4));
  const RunFigures sum = Sum(run);
  EXPECT_EQ(sum.elapsed_s, 20);
  EXPECT_EQ(std::accumulate(sum.badput_s.begin(), sum.badput_s.end(), sum.good_s), 20);
}

TEST_F(ExportTest, ExpectedEndIsThatOfNewestAttempt) {
  run_.Event("001-812", 52, "step", StepKeys(4, 1) + R"(,"eta_s":10)");
  const auto text = [&](const char* attempt) {
    return PrometheusText(
        std::vector{RunMetrics{.state = {.attempt = attempt}, .figures = Sum(run_)}});
  };
  EXPECT_THAT(text("001-812"), HasSubstr("gaccd_eta_timestamp_seconds{"));
  EXPECT_THAT(text("002-812"), Not(HasSubstr("gaccd_eta_timestamp_seconds"))) << "it just starts";
}

TEST_F(ExportTest, UpdatesOfTheTrainingAreUnknownBeforeTheFirst) {
  const auto text = [](std::int64_t steps_total) {
    return PrometheusText(
        std::vector{RunMetrics{.run = "a", .state = {.step = 9, .steps_total = steps_total}}});
  };
  EXPECT_THAT(text(40), HasSubstr("gaccd_steps_target{run=\"a\",slurm_job_id=\"\"} 40\n"));
  EXPECT_THAT(text(0), AllOf(HasSubstr("gaccd_step{"), Not(HasSubstr("gaccd_steps_target"))));
}

TEST_F(ExportTest, EvaluationBeforeLostOneIsNewest) {
  run_.Event("001-812", 52, "step", StepKeys(4, 1));
  run_.Event("001-812", 53, "eval", R"(,"step":4,"metric":"loss","value":0.5,"dur_s":0.5)");
  run_.Event("002-812", 60, "resume", R"(,"step":3,"dur_s":1.5)");
  EXPECT_THAT(Sum(run_).evals, ElementsAre(Pair("accuracy", 0.75), Pair("loss", 1.25)));
}

TEST_F(ExportTest, BatchIsOfNewestStage) {
  const auto add_plan = [&](const char* attempt, int second, int world) {
    run_.Event(attempt, second, "plan",
               StrCat(R"(,"world":)", world,
                      R"(,"target_batch":3072,"effective_batch":3070,"accum_steps":2)"));
  };
  const auto batch = [&] {
    const RunFigures sum = Sum(run_);
    return std::vector{sum.BatchNumber("target", "target_batch"),
                       sum.BatchNumber("target", "effective_batch"),
                       sum.BatchNumber("accum_steps", "accum_steps")};
  };
  const std::vector<std::optional<double>> first{3072, 3070, 2};
  const std::vector<std::optional<double>> second{6144, 6144, 4};
  add_plan("002-812", 100, 8);
  EXPECT_EQ(batch(), first);
  run_.Event("002-812", 110, "target", R"(,"step":3,"target":6144,"accum_steps":4)");
  EXPECT_EQ(batch(), second);
  const std::string text =
      PrometheusText(std::vector{RunMetrics{.run = "a", .figures = Sum(run_)}});
  EXPECT_THAT(text, HasSubstr("gaccd_batch_target_samples{run=\"a\",slurm_job_id=\"\"} 6144\n"));
  EXPECT_THAT(text, HasSubstr("gaccd_batch_effective_samples{run=\"a\",slurm_job_id=\"\"} 6144\n"));
  EXPECT_THAT(text, HasSubstr("gaccd_accumulation_steps{run=\"a\",slurm_job_id=\"\"} 4\n"));
  add_plan("003-812", 200, 8);
  run_.Event("003-812", 201, "resume", R"(,"step":3)");
  EXPECT_EQ(batch(), second);
  add_plan("004-812", 300, 8);
  run_.Event("004-812", 301, "resume", R"(,"step":2)");
  EXPECT_EQ(batch(), first) << "the update before which it began is not done any more";
  run_.Event("004-812", 310, "target", R"(,"step":3,"target":6144,"accum_steps":4)");
  add_plan("005-812", 400, 16);
  EXPECT_EQ(batch(), first) << "other ranks";
}

TEST_F(ExportTest, RequestedBatchOfARoundedStageIsUnknown) {
  for (const auto& [mode, known] : {std::pair{"floor", false}, std::pair{"exact", true}}) {
    RunFiles run;
    run.Event("000-812", 1, "plan",
              StrCat(R"(,"mode":")", mode, R"(","world":2,"target_batch":100,)",
                     R"("effective_batch":60,"accum_steps":1)"));
    const auto text = [&] {
      return PrometheusText(std::vector{RunMetrics{.run = "a", .figures = Sum(run)}});
    };
    const std::string name = "gaccd_batch_target_samples{run=\"a\",slurm_job_id=\"\"}";
    EXPECT_THAT(text(), HasSubstr(name + " 100\n")) << mode;
    // Of 410 that were asked for, rounded down.
    run.Event("000-812", 2, "target", R"(,"step":3,"target":360,"accum_steps":6)");
    EXPECT_THAT(text(),
                HasSubstr("gaccd_batch_effective_samples{run=\"a\",slurm_job_id=\"\"} 360"));
    EXPECT_EQ(text().find(name) != std::string::npos, known) << mode;
  }
}

// The counters in a text of Prometheus.
std::map<std::string, double> CountersIn(const std::string& text) {
  std::map<std::string, double> counters;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t value = line.rfind(' ');
    if (line.starts_with('#') || line.find("_total{") == std::string::npos) continue;
    counters[line.substr(0, value)] = std::stod(line.substr(value));
  }
  return counters;
}

TEST_F(ExportTest, CountersNeverDecrease) {
  struct Line {
    const char* attempt;
    int second;
    const char* event;
    std::string more;
  };
  const auto long_step = [](int step) {
    return StrCat(R"(,"step":)", step, R"(,"dur_s":60,"loss_finite":true,"grad_finite":true)");
  };
  const Line lines[] = {
      {"000-812", 0, "run_start", ""},
      {"000-812", 10, "starting", R"(,"stage":"data")"},
      {"000-812", 100, "heartbeat", ""},
      {"000-812", 130, "log", ""},
      {"000-812", 140, "step", long_step(1)},
      {"000-812", 170, "heartbeat", ""},
      {"000-812", 200, "step", long_step(2)},
      {"000-812", 230, "save", R"(,"step":2,"ok":true,"stall_s":0.5,"dur_s":30)"},
      {"000-812", 261, "step", long_step(3)},
      {"000-812", 271, "eval", R"(,"step":3,"metric":"loss","value":1.25,"dur_s":10)"},
      {"001-812", 300, "run_start", ""},
      {"001-812", 350, "heartbeat", ""},  // it ends without an update
      {"002-812", 400, "run_start", ""},
      {"002-812", 410, "starting", R"(,"stage":"checkpoint")"},
      {"002-812", 450, "heartbeat", ""},
      {"002-812", 500, "resume", R"(,"step":2,"dur_s":90)"},
      {"002-812", 540, "heartbeat", ""},
      {"002-812", 570, "step", long_step(3)},
      {"002-812", 571, "verdict", ""},
  };
  RunFiles run;
  std::map<std::string, double> before;
  RunFigures sum;
  for (const Line& line : lines) {
    run.Event(line.attempt, line.second, line.event, line.more);
    sum = Sum(run);
    const auto now = CountersIn(PrometheusText(std::vector{RunMetrics{.figures = sum}}));
    for (const auto& [name, value] : before) {
      EXPECT_GE(now.at(name), value) << name << " at " << line.second << " s";
    }
    before = now;
  }
  const auto bad = [&](Badput kind) { return sum.badput_s[static_cast<std::size_t>(kind)]; };
  EXPECT_EQ(bad(Badput::kInit), 80 + 50 + 20);
  EXPECT_EQ(bad(Badput::kRecovery), 29 + 50);
  EXPECT_EQ(bad(Badput::kOther), 0.5 + 10 + 1);  // of 571 s
  run.Event("003-812", 580, "starting", "");
  run.Event("003-812", 590, "verdict", "");
  sum = Sum(run);
  EXPECT_EQ(bad(Badput::kInit), 80 + 50 + 20 + 10) << "it failed before its first update";
}

TEST_F(ExportTest, NonFiniteEvaluationIsNewestValue) {
  run_.Event("001-812", 52, "eval", R"(,"step":4,"metric":"loss","value":null,"dur_s":0.5)");
  run_.Event("001-812", 52, "eval", R"(,"step":4,"metric":"accuracy","dur_s":0.5)");
  const auto text = [&] {
    return PrometheusText(std::vector{RunMetrics{.run = "a", .figures = Sum(run_)}});
  };
  const auto line = [](const char* metric, const char* value) {
    return StrCat("gaccd_eval{run=\"a\",slurm_job_id=\"\",metric=\"", metric, "\"} ", value, "\n");
  };
  EXPECT_THAT(text(), HasSubstr(line("loss", "nan")));
  EXPECT_THAT(text(), HasSubstr(line("accuracy", "0.75"))) << "the line says nothing of it";
  run_.Event("001-812", 53, "eval", R"(,"step":5,"metric":"loss","value":1.5,"dur_s":0.5)");
  EXPECT_THAT(text(), HasSubstr(line("loss", "1.5")));
}

TEST_F(ExportTest, LossScaleOverflowIsNoFailure) {
  RunFiles run;
  run.Event("000-812", 1, "step", StepKeys(1, 4) + R"(,"loss_scale":65536)");
  EXPECT_EQ(Sum(run).nonfinite_gradients, 0);
  EXPECT_EQ(Sum(run).skipped, 1);
  run.Event("000-812", 2, "step",
            R"(,"step":2,"loss":null,"loss_finite":false,"grad_finite":false,"loss_scale":32768)");
  EXPECT_EQ(Sum(run).nonfinite_gradients, 1);
  EXPECT_EQ(Sum(run).nonfinite_losses, 1);
}

TEST_F(ExportTest, UpdateWithoutLabelsIsNotNonFinite) {
  RunFiles run;
  run.Event("000-812", 1, "step",
            R"(,"step":1,"loss":null,"loss_finite":false,"grad_finite":true,"divisor":0,)"
            R"("skipped":true)");
  run.Event("000-812", 2, "step",
            R"(,"step":2,"loss":null,"loss_finite":false,"grad_finite":true,"divisor":4,)"
            R"("skipped":true)");
  const std::string text = PrometheusText(std::vector{RunMetrics{.run = "a", .figures = Sum(run)}});
  const std::string name = "gaccd_skipped_steps_total{run=\"a\",slurm_job_id=\"\",reason=";
  EXPECT_THAT(text, HasSubstr(name + "\"unlabelled\"} 1\n"));
  EXPECT_THAT(text, HasSubstr(name + "\"nonfinite\"} 1\n"));
}

TEST_F(ExportTest, PrometheusNamesEveryRunByItsFolder) {
  WriteStatus(run_, R"(,"run":"the job","failed_saves":2,"dropped_lines":7)");
  run_.Append("attempts/001-812/env.json", R"({"SLURM_JOB_END_TIME":"1795200000"})");
  const std::string text = Export(ExportFormat::kPrometheus);
  const std::string labels = StrCat(
      "{run=\"", std::filesystem::path(run_.path()).filename().string(), "\",slurm_job_id=\"812\"");
  const auto has = [&](std::string_view name, std::string_view rest) {
    EXPECT_THAT(text, HasSubstr(StrCat("\n", name, labels, rest, "\n")));
  };
  has("gaccd_steps_total", "} 4");
  has("gaccd_step", "} 3");
  has("gaccd_loss", "} 1.5");
  has("gaccd_gradient_norm", "} nan");
  has("gaccd_state", ",state=\"running\"} 1");
  has("gaccd_state", ",state=\"failed\"} 0");
  has("gaccd_step_duration_seconds_bucket", ",le=\"1\"} 0");
  has("gaccd_step_duration_seconds_bucket", ",le=\"2\"} 4");
  has("gaccd_step_duration_seconds_bucket", ",le=\"+Inf\"} 4");
  has("gaccd_job_end_timestamp_seconds", "} 1795200000");
  has("gaccd_checkpoint_bytes", "} 1000");
  has("gaccd_checkpoint_failures_in_row", "} 2");
  has("gaccd_lost_lines", "} 7");
  has("gaccd_errors_total", ",class=\"io\"} 1");
  has("gaccd_errors_total", ",class=\"signal\"} 0");
  has("gaccd_build_info", ",version=\"0.1.0\",revision=\"abc\"} 1");
}

TEST_F(ExportTest, WritesMetricsFileAtomically) {
  WriteStatus(run_, "");
  const std::string out = run_.Path("gaccd.prom");
  const ExportRequest request{
      .folder = run_.path(), .format = ExportFormat::kPrometheus, .out = out};
  const mode_t mask = ::umask(077);
  EXPECT_OK(RunExportCommand(request));
  ::umask(mask);
  struct stat info {};
  ASSERT_EQ(::stat(out.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644) << "the collector is another user";
  const std::string before = *ReadStart(out, 1 << 20);
  EXPECT_THAT(RunExportCommand({.folder = run_.Path("none"), .format = request.format, .out = out}),
              HasKind(ErrorKind::kIo));
  EXPECT_EQ(*ReadStart(out, 1 << 20), before);
  {
    auto sink = TextSink::Open(out);
    ASSERT_TRUE(sink.ok() && sink->Write("half").ok());
  }
  EXPECT_EQ(*ReadStart(out, 1 << 20), before);
  const auto names = *ListFolder(run_.path(), 99);
  for (const std::string& name : names) {
    EXPECT_THAT(name, Not(HasSubstr(".tmp"))) << "nothing of it is left";
  }
}

TEST_F(ExportTest, ReplacesNoOtherFile) {
  WriteStatus(run_, "");
  const std::string out = run_.Path("job.txtpb");
  ASSERT_TRUE(ReplaceFile(out, "name: \"a\"", false).ok());
  for (const ExportFormat format : {ExportFormat::kPrometheus, ExportFormat::kCsv,
                                    ExportFormat::kChromeTrace, ExportFormat::kOtlpJson}) {
    EXPECT_THAT(RunExportCommand({.folder = run_.path(), .format = format, .out = out}),
                IsError(ErrorKind::kIo, "is not an export of this format: it is not replaced"));
  }
  EXPECT_EQ(*ReadStart(out, 99), "name: \"a\"");
}

TEST_F(ExportTest, OmitsRunsSilentForADay) {
  run_.Append("STATUS.json", StrCat(R"({"ts":"2020-01-01T00:00:00.000000Z","state":"done"})"));
  EXPECT_EQ(Export(ExportFormat::kPrometheus), "");
}

TEST(LabelText, AcceptsAnyBytes) {
  EXPECT_EQ(LabelText("a b"), "\"a b\"");
  EXPECT_EQ(LabelText("\"\\\n$(x)"), "\"\\\"\\\\\\n$(x)\"");
  EXPECT_EQ(LabelText("\xff"), "\"\xEF\xBF\xBD\"");
}

}  // namespace
}  // namespace gaccd
