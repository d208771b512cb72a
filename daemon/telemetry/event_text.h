// Events as lines of JSON, by the messages of proto/event.proto: one flat object, less than 4096
// bytes (texts are cut), no line break. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/plan/plan.h"
#include "daemon/telemetry/events.h"

namespace gaccd {

inline constexpr std::size_t kMaxLineBytes = 4096;

// What differs from line to line in the envelope.
struct LineStamp {
  std::string ts;
  std::int64_t seq = 0;
  std::string_view level = "info";
};

// What the reporter measures over steps.
struct StepRates {
  double samples_per_s = 0;  // of the last update
  double dur_p50_s = 0;
  double dur_p99_s = 0;
  double eta_s = 0;
  double wall_samples_per_s = 0;  // since the first update of this attempt, saves included
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
  StepRecord last;  // of the last update; step 0: none yet
  StepRates rates;
  std::string last_step_ts;
  std::int64_t from_step = 0;  // what this attempt goes on from
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
[[nodiscard]] std::string EvalJson(const RunIdentity& who, const LineStamp& stamp,
                                   const EvalRecord& event, std::string_view metric, double value);
[[nodiscard]] std::string SaveJson(const RunIdentity& who, const LineStamp& stamp,
                                   const SaveRecord& event);
[[nodiscard]] std::string ResumeJson(const RunIdentity& who, const LineStamp& stamp,
                                     const ResumeRecord& event);
[[nodiscard]] std::string LogJson(const RunIdentity& who, const LineStamp& stamp,
                                  const LogLine& event, std::int64_t step);
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
