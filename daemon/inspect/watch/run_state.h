// The state of a run by the files of its folder. Its progress is that of the newest attempt that
// did an update. How it is, the newest of these decides: STATUS.json, which rank 0 writes every 10
// s and at the end; ledger.jsonl, which the job script writes after an attempt; the folders of
// attempts; and submit.jsonl, by `gaccd submit`. Reads files only; what SLURM says: slurm_facts.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/wall_time.h"
#include "daemon/telemetry/eval_events.h"

namespace gaccd {

enum class RunPhase : std::uint8_t {
  kSubmitted,  // and has not begun since, as far as is known
  kStarting,   // no update yet
  kRunning,
  kStale,    // says that it runs, but was not written for kStaleAfter; or never began to write
  kStopped,  // ended before its time, by a signal, the file STOP or a lost rank
  kDone,
  kFailed
};
[[nodiscard]] std::string_view Name(RunPhase phase);  // "submitted", ...
// The exit code of a verb that prints the state: 0 submitted, starting, running or done; 1 stale or
// stopped; 2 failed.
[[nodiscard]] int ExitOf(RunPhase phase);

// Three writes of STATUS.json are missing.
inline constexpr std::chrono::seconds kStaleAfter{30};
// From the start of a job's script to the first STATUS.json.
inline constexpr std::chrono::seconds kStartLimit{300};

// What is empty is not known. Texts are Printable(), on one line.
struct RunState {
  std::string folder;  // as it was asked for
  std::string run;
  std::string job;
  std::string host;     // of rank 0
  std::string attempt;  // its folder's name, "001-8123456"
  std::string device;
  RunPhase phase = RunPhase::kStarting;
  bool has_status = false;   // there is a STATUS.json
  bool no_rank_yet = false;  // the newest attempt has a folder, but no rank has written
  std::string slurm;  // the state of its job in SLURM; empty: it was not asked, or does not know
  bool gone_in_slurm = false;  // SLURM will not run any of its jobs again
  std::string submitted;       // the jobs of the newest `gaccd submit`
  std::optional<double> submitted_age_s;
  std::int64_t world = 0;
  std::string loads;            // of the ranks: LoadsText()
  std::int64_t loads_step = 0;  // updates done before they changed; 0: not in this attempt
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t steps_total = 0;
  std::int64_t target = 0;  // samples of an update
  std::int64_t samples_total = 0;
  std::optional<double> loss;
  std::int64_t eval_step = 0;           // updates before the last evaluation; 0: none is known
  std::vector<MetricValue> eval;        // its loss, then its metrics
  std::optional<BestValue> best;        // by the job's evaluation.metric
  std::optional<double> samples_per_s;  // by wall clock, saves included
  std::optional<double> dur_p50_s;
  std::optional<double> eta_s;
  std::optional<std::int64_t> save_step;
  // Ages by this machine's clock, never below 0.
  double age_s =
      0;  // since the newest sign: STATUS.json, the ledger, the attempt or the submission
  std::optional<double> step_age_s;
  std::optional<double> save_age_s;
  std::int64_t failed_saves = 0;
  std::int64_t dropped_lines = 0;
  std::int64_t failed_writes = 0;  // of its files, STATUS.json and events.jsonl
  std::optional<int> exit;
  std::string reason;
  std::string suspect_hosts;  // SafeHosts()
};

// kUsage where `folder` is no run folder (run_folders.h); kIo where this user may not read it;
// kData where STATUS.json is damaged.
[[nodiscard]] Result<RunState> ReadRunState(const std::string& folder, WallTime now);

// Whether an attempt ended because of the file STOP, which may be removed by now.
[[nodiscard]] bool StoppedByFile(int exit, std::string_view reason);

}  // namespace gaccd
