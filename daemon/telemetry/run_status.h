// STATUS.json: what a run does now, and how it ended. One description writes it and reads it back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "daemon/telemetry/checkpoint_events.h"
#include "daemon/telemetry/end_events.h"
#include "daemon/telemetry/eval_events.h"
#include "daemon/telemetry/event_record.h"
#include "daemon/telemetry/run_events.h"
#include "daemon/telemetry/update_events.h"

namespace gaccd {

struct RunStatus {
  std::string ts;           // of its writing
  RunIdentity identity;     // of rank 0
  std::string attempt_dir;  // below the run folder
  std::int64_t pid = 0;
  std::string state = "starting";
  std::int64_t world = 1;
  std::string device;  // "cpu", "cuda"; empty until it is chosen
  std::string gpu;
  std::string loads;            // LoadsText() of the newest plan; empty until there is one
  std::int64_t loads_step = 0;  // updates done before they changed; 0: not since the start
  // Of the last update. Before the first one of this attempt only `step` and `samples_total` count:
  // what it continues from; then steps_total is 0.
  StepRecord last;
  EvalRecord last_eval;           // step 0: none yet
  std::optional<BestValue> best;  // of this attempt and those that it continues
  std::string last_step_ts;
  std::int64_t write_errors = 0;
  std::int64_t dropped_lines = 0;
  std::optional<std::int64_t> save_step;  // of the newest checkpoint of this attempt
  std::string save_ts;
  std::int64_t failed_saves = 0;  // in a row
  // Of the verdict, once it has ended.
  std::optional<int> exit;
  std::string reason;
  std::string suspect_hosts;

  static void VisitFields(auto& fields, auto& status);
};

// With the time of now.
[[nodiscard]] std::string StatusJson(RunStatus status);
// Nothing where `text` is no STATUS.json. Figures that it lacks are NaN.
[[nodiscard]] std::optional<RunStatus> ReadStatus(std::string_view text);

// What an event changes in STATUS.json.
void Apply(const RunStart& start, RunStatus& status);
void Apply(const PlanRecord& plan, RunStatus& status);
void Apply(const RebalanceRecord& change, RunStatus& status);
void Apply(const TargetRecord& change, RunStatus& status);
void Apply(const StepRecord& update, RunStatus& status);
void Apply(const EvalRecord& eval, RunStatus& status);
void Apply(const ResumeRecord& resume, RunStatus& status);
void Apply(const SaveRecord& save, RunStatus& status);
void Apply(const Verdict& verdict, RunStatus& status);

}  // namespace gaccd
