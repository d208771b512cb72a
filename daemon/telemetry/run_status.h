// STATUS.json: the current state of a run, and how it ended. One description writes and reads it.
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
  std::string ts;           // time of writing
  RunIdentity identity;     // of rank 0
  std::string attempt_dir;  // relative to the run folder
  std::int64_t pid = 0;
  std::string state = "starting";
  std::int64_t world = 1;
  std::string device;  // "cpu", "cuda"; empty until it is selected
  std::string gpu;
  std::string loads;            // LoadsText() of the newest plan; empty: no plan yet
  std::int64_t loads_step = 0;  // updates done before the last change; 0: unchanged since the start
  // The last update. Before the first one of this attempt only `step` and `samples_total` are set,
  // to the state from which it continues; steps_total is then 0.
  StepRecord last;
  EvalRecord last_eval;           // step 0: none yet
  std::optional<BestValue> best;  // over this attempt and those that it continues
  std::string last_step_ts;
  std::int64_t write_errors = 0;
  std::int64_t dropped_lines = 0;
  std::optional<std::int64_t> save_step;  // of the newest checkpoint of this attempt
  std::string save_ts;
  std::int64_t failed_saves = 0;  // in a row
  // From the verdict, after the end.
  std::optional<int> exit;
  std::string reason;
  std::string suspect_hosts;

  static void VisitFields(auto& fields, auto& status);
};

// With the current time.
[[nodiscard]] std::string StatusJson(RunStatus status);
// Empty if `text` is not a STATUS.json. Missing numbers are NaN.
[[nodiscard]] std::optional<RunStatus> ReadStatus(std::string_view text);

// The changes of STATUS.json by an event.
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
