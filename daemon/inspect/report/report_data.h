// The data of a report about a run: its events, read once, and the other files of its folder.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/export/run_figures.h"
#include "daemon/inspect/report/curve.h"
#include "daemon/inspect/watch/doctor.h"

namespace gaccd {

// What an attempt has that the one before had not. Empty: it is not there.
struct Change {
  std::string name;
  std::string before;
  std::string after;
};

// Times are those of its events; without one they are when its folder was made.
struct AttemptData {
  std::string name;
  WallTime begin;
  WallTime end;
  std::int64_t updates = 0;
  std::int64_t first_step = 0;  // 0: it did none
  std::int64_t last_step = 0;
  double init_s = 0;  // from its begin to its first update
  std::optional<int> exit;
  std::string verdict;  // "requeue"; empty: it lives, or left no word
  std::string reason;
  // The first kMaxFailures, the first one first. Where all only saw others lost, one of them.
  std::vector<RankFailure> failures;
  std::int64_t more_failures = 0;   // after them, or of ranks that only saw others lost
  std::vector<Change> changes;      // of the environment and of what was started
  std::vector<Change> job_changes;  // lines of the job: only `before` or `after`
};
inline constexpr std::size_t kMaxFailures = 6;

// Of rank 0, summed over updates. `other` is what the phases leave of the update.
struct PhaseSum {
  std::int64_t updates = 0;
  double data_s = 0;
  double compute_s = 0;
  double reduce_s = 0;  // without waiting
  double wait_s = 0;
  double optimizer_s = 0;
  double other_s = 0;

  PhaseSum& operator+=(const PhaseSum& more);
};

// How often a rank was busy for longest.
struct SlowestCount {
  std::string host;
  std::string phase;  // of the worst update
  std::int64_t updates = 0;
  double worst_ratio = 0;  // its busy time to that of the median rank
};

// Of a bin of updates.
struct SlowSum {
  std::int64_t updates = 0;
  std::map<std::int64_t, std::int64_t> ranks;  // updates in which each was the slowest

  SlowSum& operator+=(const SlowSum& more);
};

struct ReportData {
  std::string folder_name;
  WallTime read_at;
  Diagnosis diagnosis;
  RunFigures figures;
  std::vector<AttemptData> attempts;  // the oldest first
  Curve loss;
  Curve gradient_norm;
  Curve learning_rate;
  Curve slow_updates;                  // dur_p99_s
  std::map<std::string, Curve> evals;  // by metric
  BinSums<PhaseSum> phases{240};
  BinSums<SlowSum> slow{96};
  std::map<std::int64_t, SlowestCount> slow_ranks;
  std::int64_t first_step = 0;  // of all attempts; 0: there is none
  std::int64_t last_step = 0;
  double p50_s = 0;  // of the durations of all updates
  double p99_s = 0;
  double longest_s = 0;
  std::int64_t thinned = 0;           // updates without a line of their own (thin_events.h)
  std::int64_t on_target = 0;         // updates that counted as many samples as they were to
  std::vector<Event> saves;           // the newest
  std::vector<std::string> warnings;  // the newest, with their times
  std::string job;                    // the resolved job; empty: it cannot be read
  bool best_is_saved = false;         // a checkpoint has the weights of diagnosis.state.best
};

// kUsage, kData: ReadRunState() and ListAttempts(). What is wrong with the files of the run is in
// diagnosis.notes.
[[nodiscard]] Result<ReportData> ReadReportData(const std::string& run_dir, WallTime now);

}  // namespace gaccd
