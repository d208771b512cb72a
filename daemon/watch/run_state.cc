#include "daemon/watch/run_state.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/config/flat_json.h"
#include "daemon/rundir/host_names.h"
#include "daemon/rundir/ledger.h"
#include "daemon/rundir/next_step.h"
#include "daemon/rundir/submissions.h"
#include "daemon/watch/event_stream.h"

namespace gaccd {
namespace {

using Json = JsonMembers;

std::string Text(const Json& json, const char* key) {
  const std::string* found = json.text(key);
  if (found == nullptr) return {};
  std::string text = *found;
  std::ranges::replace(text, '\n', ' ');
  return Printable(text);
}

std::int64_t Integer(const Json& json, const char* key) {
  return json.integer<std::int64_t>(key).value_or(0);
}

std::optional<double> AgeOf(const Json& json, const char* key, WallTime now) {
  const auto at = ParseTimestamp(Text(json, key));
  if (!at) return std::nullopt;
  return std::max(0.0, std::chrono::duration<double>(now - *at).count());
}

RunPhase PhaseAfter(int exit) {
  switch (NextStepOf(exit)) {
    case NextStep::kDone:
      return RunPhase::kDone;
    case NextStep::kRequeue:
      return RunPhase::kStopped;
    case NextStep::kNoRequeue:
    case NextStep::kFail:
      break;
  }
  return RunPhase::kFailed;
}

// Of an attempt whose rank 0 was killed: another rank, or the guard of rank 0, wrote verdict.json,
// and STATUS.json still says what rank 0 was doing.
void ApplyVerdict(RunState& state, WallTime now) {
  const auto verdict =
      ReadEventFile(StrCat(state.folder, "/attempts/", state.attempt, "/verdict.json"));
  const auto exit = verdict ? verdict->Whole("exit") : std::nullopt;
  if (!exit || !std::in_range<int>(*exit)) return;
  state.exit = static_cast<int>(*exit);
  state.reason = std::string(verdict->Text("reason"));
  std::ranges::replace(state.reason, '\n', ' ');
  state.reason = Printable(state.reason);
  state.suspect_hosts = SafeHosts(std::string(verdict->Text("suspect_hosts")));
  state.step = std::max(state.step, verdict->Whole("last_step").value_or(0));
  state.samples_total = std::max(state.samples_total, verdict->Whole("samples_total").value_or(0));
  state.age_s = std::max(0.0, SecondsBetween(verdict->at, now));
}

// Of an attempt that could not write its last STATUS.json, its job script has told the ledger.
void AskLedger(RunState& state) {
  const std::vector<LedgerEntry> entries = ReadLedger(state.folder + "/ledger.jsonl");
  if (entries.empty() || entries.back().attempt != state.attempt) return;
  state.exit = entries.back().exit;
  state.reason = Printable(entries.back().reason);
  state.phase = PhaseAfter(*state.exit);
}

// Jobs that were submitted since the run ended have not begun.
void AskSubmission(RunState& state, WallTime now) {
  const auto submission = NewestSubmission(state.folder);
  const auto at = submission ? ParseTimestamp(submission->at) : std::nullopt;
  if (!at) return;
  state.submitted = submission->jobs;
  state.submitted_age_s = std::max(0.0, SecondsBetween(*at, now));
  const bool lives = state.phase == RunPhase::kStarting || state.phase == RunPhase::kRunning;
  if (!lives && *state.submitted_age_s < state.age_s) {
    state.phase = RunPhase::kSubmitted;
  }
}

// Without STATUS.json: nothing has begun.
Result<RunState> OnlySubmitted(const std::string& folder, WallTime now) {
  RunState state{.folder = folder, .phase = RunPhase::kSubmitted};
  AskSubmission(state, now);
  if (!state.submitted.empty()) {
    state.job = state.submitted;
    state.age_s = *state.submitted_age_s;
    return state;
  }
  return Status(ErrorKind::kUsage, StrCat("'", folder,
                                          "' is no run folder: it has no STATUS.json; "
                                          "expected what --run-dir was"));
}

}  // namespace

std::string_view Name(RunPhase phase) {
  constexpr std::array<std::string_view, 7> kNames{"submitted", "starting", "running", "stale",
                                                   "stopped",   "done",     "failed"};
  return kNames[static_cast<std::size_t>(phase)];
}

int ExitOf(RunPhase phase) {
  switch (phase) {
    case RunPhase::kSubmitted:
    case RunPhase::kStarting:
    case RunPhase::kRunning:
    case RunPhase::kDone:
      return 0;
    case RunPhase::kStale:
    case RunPhase::kStopped:
      return 1;
    case RunPhase::kFailed:
      break;
  }
  return 2;
}

Result<RunState> ReadRunState(const std::string& folder, WallTime now) {
  const std::string path = folder + "/STATUS.json";
  if (!PathExists(path)) return OnlySubmitted(folder, now);
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, ErrorKind::kData));
  const std::optional<Json> parsed = Json::Parse(text);
  if (!parsed || Text(*parsed, "state").empty()) {
    return Status(ErrorKind::kData, StrCat("'", path, "' is no state of a run"));
  }
  const Json& json = *parsed;
  RunState state{.folder = folder,
                 .run = Text(json, "run"),
                 .job = Text(json, "job"),
                 .host = Text(json, "host"),
                 .attempt = Text(json, "attempt_dir"),
                 .device = Text(json, "device"),
                 .world = Integer(json, "world"),
                 .epoch = Integer(json, "epoch"),
                 .step = Integer(json, "step"),
                 .steps_total = Integer(json, "steps_total"),
                 .target = Integer(json, "target"),
                 .samples_total = Integer(json, "samples_total"),
                 .loss = json.number("loss"),
                 .samples_per_s = json.number("wall_samples_per_s"),
                 .dur_p50_s = json.number("dur_p50_s"),
                 .eta_s = json.number("eta_s"),
                 .save_step = json.integer<std::int64_t>("save_step"),
                 .age_s = AgeOf(json, "ts", now).value_or(0),
                 .step_age_s = AgeOf(json, "last_step_ts", now),
                 .save_age_s = AgeOf(json, "save_ts", now),
                 .failed_saves = Integer(json, "failed_saves"),
                 .dropped_lines = Integer(json, "dropped_lines"),
                 .exit = json.integer<int>("exit"),
                 .reason = Text(json, "reason"),
                 .suspect_hosts = SafeHosts(Text(json, "suspect_hosts"))};
  state.attempt.erase(0, state.attempt.rfind('/') + 1);
  if (const auto value = json.number("best_value")) {
    state.best = {Text(json, "best_metric"), *value, Integer(json, "best_step")};
  }
  if (!state.exit && !state.attempt.empty()) ApplyVerdict(state, now);
  if (state.exit) {
    state.phase = PhaseAfter(*state.exit);
    const bool by_user = state.phase == RunPhase::kFailed && PathExists(folder + "/STOP");
    if (by_user) state.phase = RunPhase::kStopped;
    AskSubmission(state, now);
    return state;
  }
  state.phase = Text(json, "state") == "starting" ? RunPhase::kStarting : RunPhase::kRunning;
  if (state.age_s > std::chrono::duration<double>(kStaleAfter).count()) {
    state.phase = RunPhase::kStale;
    AskLedger(state);
  }
  AskSubmission(state, now);
  return state;
}

}  // namespace gaccd
