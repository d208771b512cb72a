#include "daemon/inspect/watch/run_state.h"

#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <ranges>
#include <utility>

#include "collectives/base/files.h"
#include "collectives/base/strings.h"
#include "daemon/inspect/watch/event_stream.h"
#include "daemon/inspect/watch/line_reader.h"
#include "daemon/inspect/watch/run_folders.h"
#include "daemon/rundir/attempt_verdict.h"
#include "daemon/rundir/host_names.h"
#include "daemon/rundir/ledger.h"
#include "daemon/telemetry/event_text.h"
#include "daemon/telemetry/run_status.h"

namespace gaccd {
namespace {

double Age(WallTime at, WallTime now) { return std::max(0.0, SecondsBetween(at, now)); }

std::optional<double> ParseAge(const std::string& ts, WallTime now) {
  const auto at = ParseTimestamp(ts);
  return at ? std::optional(Age(*at, now)) : std::nullopt;
}

// If the clock of rank 0 is ahead, its time does not show the age, so the time of the file counts:
// a run that died would be shown as running until this clock has caught up.
double StatusAge(const std::string& path, const std::string& ts, WallTime now) {
  const auto at = ParseTimestamp(ts);
  struct stat info {};
  if (!at || *at <= now || ::stat(path.c_str(), &info) != 0) return at ? Age(*at, now) : 0;
  return Age(std::chrono::system_clock::from_time_t(info.st_mtim.tv_sec), now);
}

std::optional<double> IfFinite(double value) {
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

RunPhase PhaseAfter(int exit, const RunState& state) {
  switch (SelectNextStep(exit)) {
    case NextStep::kDone:
      return RunPhase::kDone;
    case NextStep::kRequeue:
      return RunPhase::kStopped;
    case NextStep::kNoRequeue:
    case NextStep::kFail:
      break;
  }
  const bool stopped =
      exit == static_cast<int>(ErrorKind::kInterrupted) ||
      (exit == static_cast<int>(ErrorKind::kNoRequeue) && PathExists(state.folder + "/STOP"));
  return stopped || StoppedByFile(exit, state.reason) ? RunPhase::kStopped : RunPhase::kFailed;
}

bool IsLive(const RunState& state) {
  return state.phase == RunPhase::kStarting || state.phase == RunPhase::kRunning;
}

std::string AttemptJob(const std::string& attempt) {
  const std::string job = attempt.substr(std::min(attempt.find('-'), attempt.size() - 1) + 1);
  return job.substr(0, job.find('.'));
}

// The phase after an attempt in the ledger: the job script knows whether the run starts again, and
// writes HOLD after its last requeue.
RunPhase LedgerPhase(const LedgerEntry& entry, const RunState& state) {
  if (entry.next == NextStep::kDone) return RunPhase::kDone;
  const bool held = entry.reason.starts_with("held: ") || PathExists(state.folder + "/HOLD");
  if (held || entry.next == NextStep::kFail) return RunPhase::kFailed;
  return PhaseAfter(entry.exit, state);
}

// The ledger overrides how an attempt ended: the job script knows the exit code of srun and the
// previous attempts.
void AddLedger(const std::vector<LedgerEntry>& ledger, RunState& state, WallTime now) {
  if (ledger.empty()) return;
  const LedgerEntry& last = ledger.back();
  const auto ended = ParseTimestamp(last.ended);
  if (last.attempt != state.attempt) {
    // A job that was rejected because the run is live also writes a line.
    const bool older = state.has_status && ended && Age(*ended, now) >= state.age_s;
    if (!ended || older || (state.has_status && IsLive(state))) return;
    state.attempt = Printable(last.attempt);
    state.job = AttemptJob(state.attempt);
  }
  state.exit = last.exit;
  state.reason = Printable(last.reason);
  state.suspect_hosts = SafeHosts(last.suspect_hosts);
  if (ended) state.age_s = Age(*ended, now);
  state.phase = LedgerPhase(last, state);
}

// The newest attempt, if it began in the last `age_s` seconds and no other file mentions it.
std::optional<Attempt> NewAttempt(const std::vector<LedgerEntry>& ledger, const RunState& state,
                                  double age_s, WallTime now) {
  const auto list = ListAttempts(state.folder);
  if (!list.ok() || list->attempts.empty()) return std::nullopt;
  const Attempt& newest = list->attempts.back();
  const bool ended = std::ranges::any_of(
      ledger, [&](const LedgerEntry& entry) { return entry.attempt == newest.name; });
  if (ended || newest.name == state.attempt || Age(newest.started, now) > age_s) {
    return std::nullopt;
  }
  return newest;
}

// Newer submitted jobs have not begun, unless there is an attempt. any: STATUS.json or the ledger
// has a state.
void AddSubmission(const std::vector<LedgerEntry>& ledger, bool any, RunState& state,
                   WallTime now) {
  double age_s = any ? state.age_s : std::numeric_limits<double>::infinity();
  const auto submission = NewestSubmission(state.folder);
  const auto at = submission ? ParseTimestamp(submission->at) : std::nullopt;
  if (at) {
    state.submitted = submission->jobs;
    state.submitted_age_s = Age(*at, now);
  }
  if (any && IsLive(state)) return;
  if (at && *state.submitted_age_s < age_s) {
    age_s = *state.submitted_age_s;
    state.phase = RunPhase::kSubmitted;
    if (!any) state.job = state.submitted;
    state.age_s = age_s;
  }
  if (const auto attempt = NewAttempt(ledger, state, age_s, now)) {
    state.attempt = Printable(attempt->name);
    state.job = Printable(attempt->job);
    state.age_s = Age(attempt->started, now);
    state.no_rank_yet = true;
    state.exit.reset();
    state.reason.clear();
    state.suspect_hosts.clear();
    const bool late = state.age_s > std::chrono::duration<double>(kStartLimit).count();
    state.phase = late ? RunPhase::kStale : RunPhase::kStarting;
  }
}

// The verdict of an attempt whose rank 0 was killed: another rank, or the guard of rank 0, wrote
// it, and STATUS.json is older.
void AddVerdict(RunState& state, WallTime now) {
  const auto event =
      ReadEventFile(StrCat(state.folder, "/attempts/", state.attempt, "/verdict.json"));
  if (!event || !event->Whole("exit")) return;
  const auto verdict = ReadEvent<Verdict>(event->line, {"exit"});
  if (!verdict.ok()) return;
  state.exit = verdict->exit;
  state.reason = PrintableLine(verdict->reason);
  state.suspect_hosts = SafeHosts(verdict->suspect_hosts);
  state.step = std::max(state.step, verdict->last_step);
  state.samples_total = std::max(state.samples_total, verdict->samples_total);
  state.age_s = Age(event->at, now);
}

// Progress from the newest events of an attempt unless it is known, and evaluations that count.
// limit: the updates that later attempts did not repeat.
void AddLastUpdate(const Attempt& attempt, RunState& state, std::int64_t& limit) {
  constexpr std::size_t kTail = std::size_t{256} << 10;
  LineReader lines(attempt.folder + "/events.jsonl", kTail, LineReader::From::kLastPiece);
  std::optional<StepRecord> update;
  std::optional<std::int64_t> from;  // updates before the attempt
  std::optional<BestValue> best;
  std::int64_t eval_step = 0;
  std::vector<MetricValue> eval;
  Event event;
  while (const auto line = lines.Next()) {
    if (!ParseEvent(*line, &event)) continue;
    if (event.name == StepRecord::kEvent) {
      if (auto read = ReadEvent<StepRecord>(*line, {"step"}); read.ok()) update = *std::move(read);
      if (update && !from) from = update->step - 1;
    } else if (event.name == ResumeRecord::kEvent) {
      from = event.Whole("step");
    } else if (event.name == MetricRecord::kEvent) {
      const auto read = ReadEvent<MetricRecord>(*line, {"step", "metric"});
      if (!read.ok() || read->step > limit) continue;
      if (read->step != std::exchange(eval_step, read->step)) eval.clear();
      eval.push_back({PrintableLine(read->metric), read->value});
      if (read->best) best = {PrintableLine(read->metric), read->best->value, read->best->step};
    }
  }
  if (state.steps_total == 0 && update && update->step <= limit) {
    state.epoch = update->epoch;
    state.step = update->step;
    state.steps_total = update->steps_total;
    state.target = update->target;
    state.samples_total = update->samples_total;
    state.loss = update->loss;
  }
  if (update) limit = std::min(limit, from.value_or(update->step - 1));  // damaged: unknown
  if (state.step == 0) return;
  if (!state.best) state.best = std::move(best);
  if (state.eval.empty()) {
    state.eval_step = eval_step;
    state.eval = std::move(eval);
  }
}

// If the newest attempt, to which STATUS.json belongs, has no update, the progress is that of
// previous attempts, as are the last evaluation and the best.
void AddEarlierProgress(const std::vector<LedgerEntry>& ledger, RunState& state) {
  const auto list = ListAttempts(state.folder);
  const std::vector<Attempt> none;
  std::int64_t limit = state.step > 0 ? state.step : std::numeric_limits<std::int64_t>::max();
  int more = 16;  // attempts that are read for evaluations alone
  for (const Attempt& attempt : std::views::reverse(list.ok() ? list->attempts : none)) {
    AddLastUpdate(attempt, state, limit);
    if (state.step == 0) {
      if (const auto verdict = ReadEventFile(attempt.folder + "/verdict.json")) {
        state.step = verdict->Whole("last_step").value_or(0);
        state.samples_total = verdict->Whole("samples_total").value_or(0);
      }
    }
    if (state.step > 0 && ((state.best && !state.eval.empty()) || more-- == 0)) return;
  }
  if (state.step > 0) return;
  for (const LedgerEntry& entry : ledger) state.step = std::max(state.step, entry.last.step);
}

Result<RunState> ReadStatusFile(const std::string& folder, WallTime now) {
  const std::string path = folder + "/STATUS.json";
  if (!PathExists(path)) return RunState{.folder = folder};
  GACCD_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, ErrorKind::kData));
  const std::optional<Json> object = Json::ParseObject(text);
  GACCD_RETURN_IF_ERROR(
      CheckLineVersion(path, object ? object->integer<std::int64_t>("v") : std::nullopt));
  const std::optional<RunStatus> status = ReadStatus(text);
  if (!status) return Status(ErrorKind::kData, StrCat("'", path, "' is not a run status"));
  const StepRecord& last = status->last;
  RunState state{.folder = folder,
                 .run = PrintableLine(status->identity.run),
                 .job = PrintableLine(status->identity.job),
                 .host = PrintableLine(status->identity.host),
                 .attempt = PrintableLine(status->attempt_dir),
                 .device = PrintableLine(status->device),
                 .has_status = true,
                 .world = status->world,
                 .loads = PrintableLine(status->loads),
                 .loads_step = status->loads_step,
                 .epoch = last.epoch,
                 .step = last.step,
                 .steps_total = last.steps_total,
                 .target = last.target,
                 .samples_total = last.samples_total,
                 .loss = last.steps_total > 0 ? std::optional(last.loss) : std::nullopt,
                 .eval_step = status->last_eval.step,
                 .best = status->best,
                 .samples_per_s = IfFinite(last.rates.wall_samples_per_s),
                 .dur_p50_s = IfFinite(last.rates.dur_p50_s),
                 .eta_s = IfFinite(last.rates.eta_s),
                 .save_step = status->save_step,
                 .age_s = StatusAge(path, status->ts, now),
                 .step_age_s = ParseAge(status->last_step_ts, now),
                 .save_age_s = ParseAge(status->save_ts, now),
                 .failed_saves = status->failed_saves,
                 .dropped_lines = status->dropped_lines,
                 .failed_writes = status->write_errors,
                 .exit = status->exit,
                 .reason = PrintableLine(status->reason),
                 .suspect_hosts = SafeHosts(status->suspect_hosts)};
  state.attempt.erase(0, state.attempt.rfind('/') + 1);
  if (state.eval_step > 0) state.eval.push_back({"loss", status->last_eval.loss});
  for (const MetricValue& metric : status->last_eval.metrics) {
    state.eval.push_back({PrintableLine(metric.name), metric.value});
  }
  if (state.best) state.best->metric = PrintableLine(state.best->metric);
  if (!state.exit && !state.attempt.empty()) AddVerdict(state, now);
  const bool stale = state.age_s > std::chrono::duration<double>(kStaleAfter).count();
  state.phase = state.exit                    ? PhaseAfter(*state.exit, state)
                : stale                       ? RunPhase::kStale
                : status->state == "starting" ? RunPhase::kStarting
                                              : RunPhase::kRunning;
  return state;
}

}  // namespace

std::string_view Name(RunPhase phase) {
  constexpr std::array<std::string_view, 7> kNames{"submitted", "starting", "running", "stale",
                                                   "stopped",   "done",     "failed"};
  return kNames[static_cast<std::size_t>(phase)];
}

int ExitCode(RunPhase phase) {
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

bool StoppedByFile(int exit, std::string_view reason) {
  return exit == static_cast<int>(ErrorKind::kNoRequeue) &&
         reason.find("the file STOP") != std::string_view::npos;
}

Result<RunState> ReadRunState(const std::string& folder, WallTime now) {
  GACCD_RETURN_IF_ERROR(CheckMayRead(folder));
  if (!IsRunFolder(folder)) return NoRunFolder(folder);
  GACCD_ASSIGN_OR_RETURN(RunState state, ReadStatusFile(folder, now));
  const std::vector<LedgerEntry> ledger = ReadLedger(folder + "/ledger.jsonl");
  AddLedger(ledger, state, now);
  // The last STATUS.json may be that of the start: rank 0 was killed, or the disk was slow.
  if (state.steps_total == 0) AddEarlierProgress(ledger, state);
  const bool any = state.has_status || state.exit.has_value();
  AddSubmission(ledger, any, state, now);
  if (!any && state.submitted.empty() && !state.no_rank_yet) return NoRunFolder(folder);
  return state;
}

}  // namespace gaccd
