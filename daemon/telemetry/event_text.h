// Events as lines of JSON: one flat object, less than 4096 bytes (texts are cut), no line break.
// Keys are the names of the members in events.h, in the order of event_text.cc. Rules: no nesting,
// no lists, base units with a suffix (_s, _bytes, _ratio), integers stay integers, keys are only
// ever added, empty texts are left out. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/plan/plan.h"
#include "daemon/telemetry/events.h"
#include "daemon/telemetry/rank_steps.h"

namespace gaccd {

inline constexpr std::size_t kMaxLineBytes = 4096;

// What differs from line to line in the envelope, the keys with which every line begins: v (1), ts,
// run, job, attempt, rank, host, ev (the event's name), lvl, seq.
struct LineStamp {
  std::string ts;                   // as Timestamp()
  std::int64_t seq = 0;             // counts the lines of the file from 1, lost ones included
  std::string_view level = "info";  // "info", "warning", "error"
};

// What the reporter measures over steps.
struct StepRates {
  double samples_per_s = 0;  // of the last update
  double dur_p50_s = 0;
  double dur_p99_s = 0;
  double eta_s = 0;
  std::optional<double> mfu_ratio;  // of the last update, over the peak of all GPUs
  double wall_samples_per_s = 0;    // since the first update of this attempt, saves included
};

// STATUS.json.
struct RunStatus {
  RunIdentity identity;
  std::string attempt_dir;  // below the run folder
  std::int64_t pid = 0;
  std::string state = "starting";
  std::int64_t world = 1;
  std::string device;  // "cpu", "cuda"; empty until it is chosen
  std::string gpu;
  StepRecord last;                // of the last update; step 0: none yet
  EvalRecord last_eval;           // step 0: none yet
  std::optional<BestValue> best;  // of this attempt and those that it continues
  StepRates rates;
  std::string last_step_ts;
  std::int64_t from_step = 0;  // what this attempt continues from
  std::int64_t from_samples = 0;
  std::int64_t write_errors = 0;
  std::int64_t dropped_lines = 0;
  std::int64_t save_step = 0;     // of the newest checkpoint of this attempt
  std::string save_ts;            // empty: none yet
  std::int64_t failed_saves = 0;  // in a row
  Verdict verdict;                // once ended; verdict.verdict is empty before
};

// Now: RFC 3339, UTC, microseconds: "2026-11-20T03:04:05.123456Z".
[[nodiscard]] std::string Timestamp();

[[nodiscard]] std::string RunStartJson(const RunIdentity& who, const LineStamp& stamp,
                                       const RunStart& event);
[[nodiscard]] std::string PlanEventJson(const RunIdentity& who, const LineStamp& stamp,
                                        const Plan& plan);
[[nodiscard]] std::string StepJson(const RunIdentity& who, const LineStamp& stamp,
                                   const StepRecord& event, const StepRates& rates);
// One line a metric, "loss" first; value is null and value_finite false when it is no number.
[[nodiscard]] std::string EvalJson(const RunIdentity& who, const LineStamp& stamp,
                                   const EvalRecord& event, std::string_view metric, double value);
[[nodiscard]] std::string RankStepJson(const RunIdentity& who, const LineStamp& stamp,
                                       const RankStepRecord& event);
[[nodiscard]] std::string SaveJson(const RunIdentity& who, const LineStamp& stamp,
                                   const SaveRecord& event);
[[nodiscard]] std::string ResumeJson(const RunIdentity& who, const LineStamp& stamp,
                                     const ResumeRecord& event);
[[nodiscard]] std::string WeightsJson(const RunIdentity& who, const LineStamp& stamp,
                                      const WeightsRecord& event);
// A stage of the start begins: "data", "device", "memory", "checkpoint".
[[nodiscard]] std::string StartingJson(const RunIdentity& who, const LineStamp& stamp,
                                       std::string_view stage);
[[nodiscard]] std::string HeartbeatJson(const RunIdentity& who, const LineStamp& stamp,
                                        const HeartbeatRecord& event);
[[nodiscard]] std::string MemoryJson(const RunIdentity& who, const LineStamp& stamp,
                                     const MemoryRecord& event);
[[nodiscard]] std::string LogJson(const RunIdentity& who, const LineStamp& stamp,
                                  const LogLine& event, std::int64_t step);
// Lines of this file before this one are lost; its seq and ts are those of the last of them.
// `reason` is that of the first one ever, `total` counts since the start.
[[nodiscard]] std::string DroppedJson(const RunIdentity& who, const LineStamp& stamp,
                                      std::int64_t lines, std::int64_t total,
                                      std::string_view reason);
[[nodiscard]] std::string FailureJson(const RunIdentity& who, const LineStamp& stamp,
                                      const Failure& event);
// The other way round. kData when it is no such line; texts may be anything.
[[nodiscard]] Result<Failure> ParseFailureJson(const std::string& line);
[[nodiscard]] std::string VerdictJson(const RunIdentity& who, const LineStamp& stamp,
                                      const Verdict& event);
[[nodiscard]] std::string StatusJson(const RunStatus& status);

}  // namespace gaccd
