// The state of a run as its folder tells it: STATUS.json, which rank 0 writes every 10 s and at the
// end; where that ends without a word (rank 0's node was lost), ledger.jsonl; and submit.jsonl, by
// `gaccd submit`. Reads files only.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/telemetry/events.h"
#include "daemon/watch/wall_time.h"

namespace gaccd {

enum class RunPhase : std::uint8_t {
  kSubmitted,  // and has not begun since, as far as the files tell
  kStarting,   // no update yet
  kRunning,
  kStale,    // says that it runs, but was not written for kStaleAfter
  kStopped,  // ended before its time, by a signal, the file STOP or a lost rank
  kDone,
  kFailed
};
[[nodiscard]] std::string_view Name(RunPhase phase);  // "submitted", ...
// What a verb that tells the state exits with: 0 submitted, starting, running or done; 1 stale or
// stopped; 2 failed.
[[nodiscard]] int ExitOf(RunPhase phase);

// Three writes of STATUS.json are missing.
inline constexpr std::chrono::seconds kStaleAfter{30};

// What is empty is not known. Texts are Printable(), on one line.
struct RunState {
  std::string folder;  // as it was asked for
  std::string run;
  std::string job;
  std::string host;     // of rank 0
  std::string attempt;  // its folder's name, "001-8123456"
  std::string device;
  RunPhase phase = RunPhase::kStarting;
  std::string submitted;  // the jobs of the newest `gaccd submit`
  std::optional<double> submitted_age_s;
  std::int64_t world = 0;
  std::int64_t epoch = 0;
  std::int64_t step = 0;
  std::int64_t steps_total = 0;
  std::int64_t target = 0;  // samples of an update
  std::int64_t samples_total = 0;
  std::optional<double> loss;
  std::optional<BestValue> best;        // by the job's evaluation.metric
  std::optional<double> samples_per_s;  // by wall clock, saves included
  std::optional<double> dur_p50_s;
  std::optional<double> eta_s;
  std::optional<std::int64_t> save_step;
  // Ages by this machine's clock, never below 0.
  double age_s = 0;  // since STATUS.json was written
  std::optional<double> step_age_s;
  std::optional<double> save_age_s;
  std::int64_t failed_saves = 0;
  std::int64_t dropped_lines = 0;
  std::optional<int> exit;
  std::string reason;
  std::string suspect_hosts;  // SafeHosts()
};

// kUsage where `folder` is no run folder: it has neither STATUS.json nor submit.jsonl; kData where
// the first cannot be read.
[[nodiscard]] Result<RunState> ReadRunState(const std::string& folder, WallTime now);

}  // namespace gaccd
