#include "daemon/telemetry/event_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "daemon/plan/load_groups.h"
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

TEST(EventTextTest, StepLineHasTheKeysOfTheSchemaInOrder) {
  StepRecord step = SomeStep();
  step.rates = {3648, 0.8388, 0.912, 75451};
  EXPECT_EQ(EventJson(kWho, kStamp, step),
            R"({"v":1,"ts":"2026-11-20T03:14:05.123456Z","run":"r50-3072","job":"8123456",)"
            R"("attempt":1,"rank":0,"host":"gpu-a001","ev":"step","lvl":"info","seq":412,)"
            R"("epoch":2,"step":400,"steps_total":90000,"samples":3072,"target":3072,)"
            R"("samples_total":1228800,"loss":2.31407,"loss_finite":true,)"
            R"("divisor":3072,"unit":"samples","grad_norm":0.8123,)"
            R"("grad_finite":true,"lr":3e-04,"skipped":false,"dur_s":0.8421,"data_s":0.0112,)"
            R"("fwd_bwd_s":0.691,"reduce_s":0.1104,"opt_s":0.0295,"wait_s":0.0412,)"
            R"("samples_per_s":3648,"dur_p50_s":0.8388,"dur_p99_s":0.912,"eta_s":75451})");
}

TEST(EventTextTest, RankLineHasTimesAndMemory) {
  const RankStepRecord record{.step = 400,
                              .updates = 70,
                              .dur_max_s = 1.5,
                              .dur_s = 0.8421,
                              .data_s = 0.0112,
                              .fwd_bwd_s = 0.691,
                              .reduce_s = 0.1104,
                              .opt_s = 0.0295,
                              .wait_s = 0.0412,
                              .memory_bytes = 1 << 30};
  EXPECT_EQ(EventJson({"r50", "812", 1, 17, "n3"}, kStamp, record),
            R"({"v":1,"ts":"2026-11-20T03:14:05.123456Z","run":"r50","job":"812","attempt":1,)"
            R"("rank":17,"host":"n3","ev":"rank_step","lvl":"info","seq":412,"step":400,)"
            R"("updates":70,"dur_s":0.8421,"dur_max_s":1.5,"data_s":0.0112,"fwd_bwd_s":0.691,)"
            R"("reduce_s":0.1104,"opt_s":0.0295,"wait_s":0.0412,"memory_bytes":1073741824})");
}

TEST(EventTextTest, Fp16LineHasLossScale) {
  StepRecord step = SomeStep();
  EXPECT_EQ(Parse(EventJson(kWho, kStamp, step)).count("loss_scale"), 0U);
  step.loss_scale = {.scale = 65536, .growth_tracker = 7};
  const Object line = Parse(EventJson(kWho, kStamp, step));
  EXPECT_EQ(Number(line, "loss_scale"), 65536);
  EXPECT_EQ(Number(line, "growth_tracker"), 7);
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

TEST(EventTextTest, RunStartOmitsMissingValues) {
  RunStart start;
  start.version = "0.1.0";
  start.world = 4;
  const Object line = Parse(EventJson(kWho, kStamp, start));
  EXPECT_EQ(Text(line, "ev"), "run_start");
  EXPECT_EQ(Number(line, "world"), 4);
  for (const char* key :
       {"git", "mpi", "partition", "account", "nodelist", "memory_planned_bytes", "peak_flops",
        "device", "gpu", "cuda", "nccl", "gpu_memory_planned_bytes"}) {
    EXPECT_EQ(line.count(key), 0u) << key;
  }
}

TEST(EventTextTest, RunStartNamesHardware) {
  RunStart start;
  start.device = "cpu";
  start.device_reason = "device cpu: no NVIDIA driver";
  start.precision = "f32";
  Object line = Parse(EventJson(kWho, kStamp, start));
  EXPECT_EQ(Text(line, "device"), "cpu");
  EXPECT_EQ(Text(line, "device_reason"), "device cpu: no NVIDIA driver");
  EXPECT_EQ(Text(line, "precision"), "f32");
  EXPECT_EQ(line.count("cuda"), 0u) << "no rank uses it";
  start.device = "cuda";
  start.gpu = "NVIDIA H200";
  start.flops_per_sample = 5.1e9;
  start.peak_flops = 989.4e12;
  start.gpu_memory_planned_bytes = 4'096;
  start.cuda = "13.0.0";
  start.driver = "13.1.0";
  start.cublaslt = "13.1.2";
  start.cudnn = "9.19.0";
  start.nccl = "2.28.9";
  line = Parse(EventJson(kWho, kStamp, start));
  EXPECT_EQ(Text(line, "gpu"), "NVIDIA H200");
  EXPECT_EQ(Number(line, "flops_per_sample"), 5.1e9);
  EXPECT_EQ(Number(line, "peak_flops"), 989.4e12);
  EXPECT_EQ(Number(line, "gpu_memory_planned_bytes"), 4096);
  EXPECT_EQ(Text(line, "cuda"), "13.0.0");
  EXPECT_EQ(Text(line, "driver"), "13.1.0");
  EXPECT_EQ(Text(line, "cublaslt"), "13.1.2");
  EXPECT_EQ(Text(line, "cudnn"), "9.19.0");
  EXPECT_EQ(Text(line, "nccl"), "2.28.9");
}

TEST(EventTextTest, EvalAndVerdict) {
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
  const Object verdict =
      Parse(EventJson(kWho, kStamp, Verdict{"requeue", 69, "rank 3 is gone", 17, 17'000, 2.5}));
  EXPECT_EQ(Text(verdict, "verdict"), "requeue");
  EXPECT_EQ(Number(verdict, "exit"), 69);
  EXPECT_EQ(Text(verdict, "reason"), "rank 3 is gone");
  EXPECT_EQ(Number(verdict, "last_step"), 17);
}

TEST(EventTextTest, StartHeartbeatAndMemoryHaveTheKeysOfTheSchema) {
  EXPECT_THAT(EventJson(kWho, kStamp, StageRecord{"data"}),
              HasSubstr(R"(,"seq":412,"stage":"data"})"));
  EXPECT_THAT(EventJson(kWho, kStamp, HeartbeatRecord{"reduce", 7, 3, 30.5}),
              HasSubstr(R"(,"seq":412,"phase":"reduce","step":7,"micro_step":3,"quiet_s":30.5})"));
  EXPECT_THAT(EventJson(kWho, kStamp, MemoryRecord{36'200'000, 35'800'000}),
              HasSubstr(R"(,"seq":412,"measured_bytes":36200000,"planned_bytes":35800000})"));
}

TEST(EventTextTest, SaveResumeAndWeightsHaveTheKeysOfTheSchema) {
  SaveRecord save{.generation = "step-000000000020-micro-000003-e000002",
                  .step = 20,
                  .micro_step = 3,
                  .writer_epoch = 2,
                  .bytes = 8'036'472,
                  .stall_s = 0.004,
                  .dur_s = 0.52};
  const std::string start =
      R"({"v":1,"ts":"2026-11-20T03:14:05.123456Z","run":"r50-3072","job":"8123456",)"
      R"("attempt":1,"rank":0,"host":"gpu-a001",)";
  EXPECT_EQ(EventJson(kWho, kStamp, save),
            start + R"("ev":"save","lvl":"info","seq":412,"step":20,"micro_step":3,)"
                    R"("generation":"step-000000000020-micro-000003-e000002","writer_epoch":2,)"
                    R"("ok":true,"bytes":8036472,"stall_s":0.004,"dur_s":0.52})");
  save.reason = "no space left";
  save.failed_in_row = 2;
  const Object failed = Parse(EventJson(kWho, kStamp, save));
  EXPECT_FALSE(Bool(failed, "ok"));
  EXPECT_EQ(Text(failed, "reason"), "no space left");
  EXPECT_EQ(Number(failed, "failed_in_row"), 2);
  EXPECT_EQ(EventJson(kWho, kStamp,
                      ResumeRecord{.generation = "step-000000000020-e000002",
                                   .folder = "runs/a/ckpt",
                                   .step = 20,
                                   .writer_epoch = 2,
                                   .samples_total = 61'440,
                                   .skipped_checkpoints = 1,
                                   .bytes = 8'036'472,
                                   .dur_s = 0.3}),
            start +
                R"("ev":"resume","lvl":"info","seq":412,"step":20,"micro_step":0,)"
                R"("generation":"step-000000000020-e000002","folder":"runs/a/ckpt",)"
                R"("writer_epoch":2,"samples_total":61440,"skipped_checkpoints":1,"bytes":8036472,)"
                R"("dur_s":0.3})");
  EXPECT_EQ(EventJson(kWho, kStamp,
                      WeightsRecord{.file = "bert.safetensors",
                                    .parameters = 39,
                                    .loaded = 37,
                                    .fresh = "classifier.weight [3, 12], classifier.bias [3]",
                                    .unused = "cls.bias"}),
            start + R"("ev":"weights","lvl":"info","seq":412,"file":"bert.safetensors",)"
                    R"("parameters":39,"loaded":37,)"
                    R"("fresh":"classifier.weight [3, 12], classifier.bias [3]",)"
                    R"("unused":"cls.bias"})");
}

template <typename Record>
void ReadsBack(const Record& record) {
  const std::string line = EventJson(kWho, kStamp, record);
  const auto back = ValueOrThrow(ReadEvent<Record>(line));
  EXPECT_EQ(EventJson(kWho, kStamp, back), line);
}

TEST(EventTextTest, RecordRoundTrips) {
  StepRecord step = SomeStep();
  ReadsBack(step);
  step.grad_norm = std::numeric_limits<double>::quiet_NaN();
  step.unit = "tokens";
  step.skipped = true;
  step.loss_scale = {.scale = 65536, .growth_tracker = 7};
  step.straggler = {.rank = 3, .host = "n1", .phase = "data", .ratio = 1.5};
  step.digest = "0123456789abcdef";
  step.rates = {3648, 0.8388, 0.912, 75451, 0.25};
  ReadsBack(step);
  ReadsBack(RankStepRecord{.step = 4, .updates = 2, .dur_s = 0.5, .memory_bytes = 1 << 20});
  ReadsBack(MetricRecord{.step = 6, .metric = "loss", .value = 0.5, .best = {{"loss", 0.25, 4}}});
  ReadsBack(RunStart{.git = "abc", .world = 4, .peak_flops = 1e15, .ema_decay = 0.999});
  ReadsBack(SaveRecord{.generation = "g", .step = 2, .reason = "full", .failed_in_row = 2});
  ReadsBack(ResumeRecord{.generation = "g", .folder = "f", .step = 20, .dur_s = 0.3});
  ReadsBack(WeightsRecord{.file = "w", .parameters = 39, .loaded = 37, .fresh = "a [3]"});
  ReadsBack(HeartbeatRecord{"reduce", 7, 3, 30.5});
  ReadsBack(DroppedLines{3, 5, "no space left"});
  ReadsBack(Failure{.exit = 74, .phase = "reduce", .sequence = 7, .message = "x"});
  Verdict verdict{.verdict = "requeue", .exit = 69, .reason = "lost", .suspect_hosts = "n1,n2"};
  ReadsBack(verdict);
  verdict.first = Suspect{.rank = 3, .host = "n1", .memory_bytes = 5};
  verdict.first_failure = Failure{.exit = 74, .message = "x"};
  verdict.lost_ranks = {3, 7};
  verdict.killed = true;
  ReadsBack(verdict);
  verdict.first_failure = Failure{.signal = 11};  // it left no message
  ReadsBack(verdict);
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

// Loki and Fluent Bit give up on long lines: whatever the texts are, a line stays below 4096 bytes.
TEST(EventTextTest, LinesStayShort) {
  for (const std::string& text :
       {std::string(100'000, 'x'), std::string(100'000, '\n'), std::string(100'000, '\x01'),
        std::string(1200, '\x02'), std::string(100'000, '\xff'), std::string(70, '"')}) {
    const RunIdentity who{text, text, 1'000'000, 239, text};
    RunStart start{text, text, text, text, 1,    1,   text, text, text, text, text, 1,    1,   1, 1,
                   1,    1,    text, text, text, 0.9, text, 1,    text, text, text, text, text};
    EXPECT_LT(EventJson(who, kStamp, start).size(), kMaxLineBytes);
    const LogLine log{"warning", text, 1, text};
    EXPECT_LT(EventJson(who, kStamp, log).size(), kMaxLineBytes);
    EXPECT_LT(EventJson(who, kStamp, Verdict{"fail", 70, text, 1, 1, 1}).size(), kMaxLineBytes);
    EXPECT_LT(EventJson(who, kStamp, SomeStep()).size(), kMaxLineBytes);
    EXPECT_LT(EventJson(who, kStamp, SaveRecord{.generation = text, .reason = text}).size(),
              kMaxLineBytes);
    EXPECT_LT(EventJson(who, kStamp, ResumeRecord{.generation = text, .folder = text}).size(),
              kMaxLineBytes);
    EXPECT_LT(EventJson(who, kStamp, WeightsRecord{text, 1, 1, text, text}).size(), kMaxLineBytes);
    Parse(EventJson(who, kStamp, log));
    EXPECT_EQ(EventJson(who, kStamp, log).find('\n'), std::string::npos);
  }
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
