#include "daemon/telemetry/event_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "daemon/plan/speeds.h"
#include "daemon/telemetry/event_lines.h"
#include "daemon/telemetry/events.h"
#include "daemon/telemetry/run_status.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/telemetry/json.h"

namespace gaccd {
namespace {

using namespace testing_json;  // NOLINT

const RunIdentity kWho{"r50-3072", "8123456", 1, 0, "gpu-a001"};
const LineStamp kStamp{"2026-11-20T03:14:05.123456Z", 412, "info"};

StepRecord SomeStep() {
  StepRecord step;
  step.epoch = 2;
  step.step = 400;
  step.steps_total = 90'000;
  step.samples = 3072;
  step.target = 3072;
  step.samples_total = 1'228'800;
  step.loss = 2.31407;
  step.divisor = 3072;
  step.grad_norm = 0.8123;
  step.lr = 0.0003;
  step.dur_s = 0.8421;
  step.data_s = 0.0112;
  step.fwd_bwd_s = 0.691;
  step.reduce_s = 0.1104;
  step.opt_s = 0.0295;
  step.wait_s = 0.0412;
  return step;
}

TEST(EventTextTest, NonFiniteIsNullAndFlagged) {
  StepRecord step = SomeStep();
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.grad_norm = std::numeric_limits<double>::infinity();
  step.skipped = true;
  step.wait_s.reset();
  const Object line = Parse(EventJson(kWho, kStamp, step));
  EXPECT_TRUE(IsNull(line, "loss"));
  EXPECT_TRUE(IsNull(line, "grad_norm"));
  EXPECT_FALSE(Bool(line, "loss_finite"));
  EXPECT_FALSE(Bool(line, "grad_finite"));
  EXPECT_TRUE(Bool(line, "skipped"));
  EXPECT_EQ(line.count("wait_s"), 0u);
}

TEST(EventTextTest, PlanLineHasEnvelopeAndPlan) {
  const auto plan = ValueOrThrow(Plan::Make({.nodes = 30, .target_batch = 3072}));
  const Object line = Parse(EventJson(kWho, kStamp, PlanRecord{plan, ""}));
  EXPECT_EQ(Text(line, "ev"), "plan");
  EXPECT_EQ(Text(line, "mode"), "exact");
  EXPECT_EQ(Number(line, "effective_batch"), 3072);
  EXPECT_EQ(Number(line, "ranks_hi"), 192);
}

// 4096 ranks of a thousand speeds, of which a rank takes 0 to some 1500 samples.
TEST(EventTextTest, LoadsAndSpeedsOfManyRanksFitOneLine) {
  const auto with = [](int nodes) {
    PlanRequest request{.nodes = nodes, .gpus_per_node = 8, .target_batch = nodes * 8 * 300};
    for (int rank = 0; rank < 8 * nodes; ++rank) {
      request.speeds.push_back(rank % 7 == 0 ? 1e-6 : (1 + rank * 617 % 1000) / 1000.0);
    }
    return ValueOrThrow(Plan::Make(request));
  };
  const auto groups_in = [](const std::string& text) {
    return static_cast<std::size_t>(std::ranges::count(text, ',')) + 1;
  };
  for (const int nodes : {30, 512}) {
    const Plan plan = with(nodes);
    ASSERT_GT(LoadGroups(plan).size(), 8 * kMaxLoadsInText);
    const std::string text = EventJson(kWho, kStamp, PlanRecord{plan, ""});
    const RebalanceRecord change{.step = 25,
                                 .loads_before = LoadsText(plan),
                                 .loads = LoadsText(plan),
                                 .speeds = SpeedsText(plan, kMaxSpeeds)};
    const std::string changed = EventJson(kWho, kStamp, change);
    EXPECT_LT(text.size(), kMaxLineBytes);
    EXPECT_LT(changed.size(), kMaxLineBytes);
    const Object line = Parse(text);
    EXPECT_EQ(groups_in(Text(line, "loads")), kMaxLoadsInText);
    EXPECT_EQ(line.count("speeds"), nodes == 30 ? 1U : 0U) << "all of them, or none";
    const RebalanceRecord back = ValueOrThrow(ReadEvent<RebalanceRecord>(changed));
    EXPECT_EQ(back.loads, Text(line, "loads"));
    if (nodes == 30) {
      EXPECT_EQ(*ParseSpeeds(back.speeds, plan.world()), plan.request().speeds);
    }
  }
  const Plan equal = ValueOrThrow(Plan::Make({.nodes = 30, .target_batch = 3072}));
  EXPECT_EQ(Text(Parse(EventJson(kWho, kStamp, PlanRecord{equal, ""})), "loads"), "192x13,48x12");
}

// By rank, and cut.
TEST(EventTextTest, ReadsRebalanceLineOfOlderVersion) {
  const auto read = ReadEvent<RebalanceRecord>(
      R"({"ev":"rebalance","step":25,"gain_ratio":1.5,"idle_ratio":0.1,"accum_steps":2,)"
      R"("loads_before":"4x13,1x12,4x13,1...","loads":"1x15,1x14,1x15,1x9","speeds":"1x1,1x0..."})");
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->step, 25);
  EXPECT_EQ(read->loads_before, "4x13,1x12,4x13,1...");
}

TEST(EventTextTest, NewTargetRoundTrips) {
  const TargetRecord change{.step = 132,
                            .samples_total = 100'000,
                            .stage = 2,
                            .target_before = 768,
                            .target = 3072,
                            .accum_steps = 2,
                            .loads = "192x13,48x12"};
  EXPECT_EQ(EventLine(change),
            "effective batch after update 132 (100000 samples): 768 -> 3072, loads 192x13,48x12 in "
            "2 micro-steps");
  const std::string text = EventJson(kWho, kStamp, change);
  EXPECT_EQ(EventJson(kWho, kStamp, ValueOrThrow(ReadEvent<TargetRecord>(text))), text);
  RunStatus status;
  Apply(change, status);
  EXPECT_EQ(status.loads, "192x13,48x12");
  EXPECT_EQ(status.loads_step, 132);
}

TEST(EventTextTest, EvaluationBecomesOneRecordPerMetric) {
  const EvalRecord eval{.step = 60,
                        .samples = 10'000,
                        .loss = 0.5,
                        .divisor = 51'234,
                        .unit = "tokens",
                        .metrics = {{"accuracy", 0.8841}},
                        .best = BestValue{.metric = "loss", .value = 0.25, .step = 40}};
  const std::vector<MetricRecord> records = MetricRecords(eval);
  ASSERT_EQ(records.size(), 2U);
  const Object line = Parse(EventJson(kWho, kStamp, records[1]));
  EXPECT_EQ(Text(line, "metric"), "accuracy");
  EXPECT_EQ(Number(line, "value"), 0.8841);
  EXPECT_TRUE(Bool(line, "value_finite"));
  EXPECT_EQ(Number(line, "divisor"), 51'234);
  EXPECT_EQ(Text(line, "unit"), "tokens");
  EXPECT_EQ(line.count("best_step"), 0U);
  EXPECT_THAT(EventJson(kWho, kStamp, records[0]),
              HasSubstr(R"("best_step":40,"best_value":0.25})"));
}

TEST(EventTextTest, ReadsNonFiniteNumbersAndFailureWithoutMessage) {
  StepRecord step = SomeStep();
  step.grad_norm = std::numeric_limits<double>::quiet_NaN();
  const std::string line = EventJson(kWho, kStamp, step);
  EXPECT_TRUE(std::isnan(ValueOrThrow(ReadEvent<StepRecord>(line)).grad_norm));
  Verdict verdict{.verdict = "requeue", .exit = 69};
  verdict.first = Suspect{.rank = 3};
  verdict.first_failure = Failure{.signal = 11};
  const auto back = ValueOrThrow(ReadEvent<Verdict>(EventJson(kWho, kStamp, verdict)));
  ASSERT_TRUE(back.first_failure.has_value());
  EXPECT_EQ(back.first_failure->signal, 11);
}

TEST(EventTextTest, OmitsOptionalFieldsOfOtherType) {
  const std::string line =
      R"({"ev":"verdict","verdict":"fail","exit":78,"reason":7,"last_step":"9","dur_s":1.5})";
  const Verdict verdict = ValueOrThrow(ReadEvent<Verdict>(line, {"verdict", "exit"}));
  EXPECT_EQ(verdict.exit, 78);
  EXPECT_EQ(verdict.reason, "");
  EXPECT_EQ(verdict.last_step, 0);
  EXPECT_EQ(verdict.dur_s, 1.5);
  EXPECT_THAT(ReadEvent<Verdict>(line, {"exit", "last_step"}),
              IsError(ErrorKind::kData, "last_step: expected a whole number"));
  EXPECT_THAT(ReadEvent<Verdict>(line, {"samples_total"}),
              IsError(ErrorKind::kData, "samples_total: expected a value, found none"));
}

TEST(EventTextTest, ShortTextsAreNotCut) {
  const std::string message(1200, 'x');
  const Object line = Parse(EventJson(kWho, kStamp, LogLine{"warning", "a.cc", 7, message, 3}));
  EXPECT_EQ(Text(line, "msg"), message);
  EXPECT_EQ(Number(line, "line"), 7);
  const std::string longer = message + "y";
  const Object cut = Parse(EventJson(kWho, kStamp, LogLine{"warning", "a.cc", 7, longer}));
  EXPECT_THAT(Text(cut, "msg"), testing::EndsWith("xxx..."));
}

TEST(EventTextTest, TimestampIsRfc3339) {
  EXPECT_THAT(Timestamp(), MatchesRegex("[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}"
                                        "\\.[0-9]{6}Z"));
}

TEST(EventTextTest, StatusOmitsUnknownValues) {
  RunStatus status;
  status.identity = kWho;
  status.attempt_dir = "attempts/001-8123456";
  const Object before = Parse(StatusJson(status));
  EXPECT_EQ(Text(before, "state"), "starting");
  EXPECT_EQ(before.count("loss"), 0u);
  EXPECT_EQ(before.count("exit"), 0u);
  EXPECT_EQ(before.count("device"), 0u);
  EXPECT_EQ(before.count("save_step"), 0u);
  EXPECT_EQ(before.count("failed_saves"), 0u);
  status.device = "cuda";
  status.gpu = "NVIDIA H200";
  status.state = "running";
  status.last = SomeStep();
  status.last_step_ts = "2026-11-20T03:14:05.123456Z";
  const Object running = Parse(StatusJson(status));
  EXPECT_EQ(Number(running, "step"), 400);
  EXPECT_EQ(Number(running, "loss"), 2.31407);
  EXPECT_EQ(Text(running, "device"), "cuda");
  EXPECT_EQ(Text(running, "gpu"), "NVIDIA H200");
  EXPECT_EQ(Text(running, "last_step_ts"), status.last_step_ts);
  EXPECT_EQ(running.count("eval_step"), 0u);
  status.last_eval = {.step = 390, .loss = 0.5, .metrics = {{"f1_macro", 0.75}}};
  status.best = {.metric = "f1_macro", .value = 0.875, .step = 300};
  const Object evaluated = Parse(StatusJson(status));
  EXPECT_EQ(Number(evaluated, "eval_step"), 390);
  EXPECT_EQ(Number(evaluated, "eval_loss"), 0.5);
  EXPECT_EQ(Number(evaluated, "eval_f1_macro"), 0.75);
  EXPECT_EQ(Text(evaluated, "best_metric"), "f1_macro");
  EXPECT_EQ(Number(evaluated, "best_value"), 0.875);
  EXPECT_EQ(Number(evaluated, "best_step"), 300);
  status.save_step = 390;
  status.save_ts = status.last_step_ts;
  status.failed_saves = 1;
  const Object saved = Parse(StatusJson(status));
  EXPECT_EQ(Number(saved, "save_step"), 390);
  EXPECT_EQ(Text(saved, "save_ts"), status.last_step_ts);
  EXPECT_EQ(Number(saved, "failed_saves"), 1);
  Apply(RebalanceRecord{.step = 380, .loads = "2x15,2x9"}, status);
  EXPECT_EQ(Text(Parse(StatusJson(status)), "loads"), "2x15,2x9");
  EXPECT_EQ(Number(Parse(StatusJson(status)), "loads_step"), 380);
  const std::optional<RunStatus> back = ReadStatus(StatusJson(status));
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->last.step, 400);
  EXPECT_EQ(back->last.loss, 2.31407);
  EXPECT_EQ(back->best->step, 300);
  EXPECT_EQ(back->save_step, 390);
  EXPECT_EQ(back->exit, std::nullopt);
  Apply(Verdict{"fail", 70, "broken", 400, 1, 1}, status);
  EXPECT_EQ(Number(Parse(StatusJson(status)), "exit"), 70);
}

// The weights are those of the loss: nothing is said of a metric by them.
TEST(EventLinesTest, ReportsSampleWeightsForLossOnly) {
  EvalRecord eval{.loss = 0.5, .divisor = 1084.28, .unit = "weights"};
  eval.metrics = {{"accuracy", 0.75}};
  EXPECT_EQ(EvalText(eval),
            "loss is 0.500000 (weighted mean; the weights sum to 1084.28), accuracy is 0.7500");
  eval.unit = "samples";
  eval.divisor = 200;
  EXPECT_EQ(EvalText(eval), "accuracy is 0.7500, loss is 0.500000 (mean of 200 samples)");
}

// Arithmetic gives NaN with a sign; of a large number no digit may be lost at its end.
TEST(EventLinesTest, ReportsNonFiniteNumbers) {
  const double nan = -std::numeric_limits<double>::quiet_NaN();
  const MetricValue metrics[] = {{"r2", nan}, {"mse", 1.75e57}, {"mae", -1e30}};
  EXPECT_EQ(MetricsText(metrics, " "), "r2 nan, mse 1.75e+57, mae -1e+30");
  EXPECT_THAT(EvalText({.loss = nan, .divisor = 1}), HasSubstr("loss is nan (mean of 1 samples)"));
  EXPECT_THAT(EvalText({.loss = 1.75e57, .divisor = 1}), HasSubstr("loss is 1.75e+57 "));
}

}  // namespace
}  // namespace gaccd
