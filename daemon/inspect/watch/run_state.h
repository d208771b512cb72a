// The state of a run from the files of its folder. Its progress is that of the newest attempt with
// an update. Its phase is determined by the newest of STATUS.json, which rank 0 writes every 10 s
// and at the end; ledger.jsonl, which the job script writes after an attempt; the folders of
// attempts; and submit.jsonl of `gaccd submit`. Does not query SLURM: slurm_facts.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/time.h"
#include "daemon/telemetry/eval_events.h"

namespace gaccd {

enum class RunPhase : std::uint8_t {
  kSubmitted,  // not begun, as far as known
  kStarting,   // no update yet
  kRunning,
  kStale,    // not written for kStaleAfter while running, or not within kStartLimit of the start
  kStopped,  // ended early, by a signal, the file STOP or a lost rank
  kDone,
  kFailed
};
[[nodiscard]] std::string_view Name(RunPhase phase);  // "submitted", ...
// The exit code of a verb that prints the state: 0 submitted, starting, running or done; 1 stale or
// stopped; 2 failed.
[[nodiscard]] int ExitCode(RunPhase phase);

// Three intervals of STATUS.json.
inline constexpr std::chrono::seconds kStaleAfter{30};
// From the start of a job's script to the first STATUS.json.
inline constexpr std::chrono::seconds kStartLimit{300};

// Empty values are unknown. Texts are Printable(), on one line.
struct RunState {
  std::string folder;  // as given
  std::string run;
  std::string job;
  std::string host;     // of rank 0
  std::string attempt;  // name of its folder, "001-8123456"
  std::string device;
  RunPhase phase = RunPhase::kStarting;
  bool has_status = false;     // there is a STATUS.json
  bool no_rank_yet = false;    // the newest attempt has a folder, but no rank has written
  std::string slurm;           // state of its job in SLURM; empty: not queried, or unknown
  bool gone_in_slurm = false;  // SLURM will not run its jobs again
  std::string submitted;       // the jobs of the newest `gaccd submit`
  std::optional<double> submitted_age_s;
  std::int64_t world = 0;
  std::string loads;            // LoadsText() of the ranks
  std::int64_t loads_step = 0;  // updates before they changed; 0: not in this attempt
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t steps_total = 0;
  std::int64_t target = 0;  // samples per update
  std::int64_t samples_total = 0;
  std::optional<double> loss;           // NaN: not finite
  std::int64_t eval_step = 0;           // updates before the last evaluation; 0: unknown
  std::vector<MetricValue> eval;        // its loss, then its metrics
  std::optional<BestValue> best;        // of the job's evaluation.metric
  std::optional<double> samples_per_s;  // by wall clock, saves included
  std::optional<double> dur_p50_s;
  std::optional<double> eta_s;
  std::optional<std::int64_t> save_step;
  // Ages by the clock of this machine, at least 0.
  double age_s = 0;  // of the newest of STATUS.json, verdict, ledger, attempt and submission
  std::optional<double> step_age_s;
  std::optional<double> save_age_s;
  std::int64_t failed_saves = 0;
  std::int64_t dropped_lines = 0;
  std::int64_t failed_writes = 0;  // of STATUS.json and events.jsonl
  std::optional<int> exit;
  std::string reason;
  std::string suspect_hosts;  // SafeHosts()
};

// kUsage if `folder` is not a run folder (run_folders.h); kIo if this user may not read it; kData
// if STATUS.json is damaged; kConfig if a newer gaccd wrote it.
[[nodiscard]] Result<RunState> ReadRunState(const std::string& folder, WallTime now);

// Whether an attempt ended because of the file STOP, which may have been removed since.
[[nodiscard]] bool StoppedByFile(int exit, std::string_view reason);

// A RunState as text. Pure; thread-safe.

// For users: a line each for run, state, progress, speed, loss, checkpoint, reason.
[[nodiscard]] std::string StateText(const RunState& state);
// One line of JSON with the known keys of STATUS.json, and folder, phase, age_s, step_age_s,
// save_age_s.
[[nodiscard]] std::string StateJson(const RunState& state);
// A table with one row per run.
[[nodiscard]] std::string RunsTable(std::span<const RunState> runs);

}  // namespace gaccd
