// The data of a report on a run, from its events and the other files of its folder.
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
#include "daemon/inspect/watch/run_folders.h"

namespace gaccd {

// A difference between an attempt and the previous one. Empty: missing.
struct Change {
  std::string name;
  std::string before;
  std::string after;
};

// Times are those of its events, or without events of its folder.
struct AttemptData {
  std::string name;
  WallTime begin;
  WallTime end;
  std::int64_t updates = 0;
  std::int64_t first_step = 0;  // 0: no update
  std::int64_t last_step = 0;
  double init_s = 0;  // from the start to the first update
  std::optional<int> exit;
  std::string verdict;  // "requeue"; empty: it is live, or has no verdict
  std::string reason;
  // The first kMaxFailures, by time. If every failed rank only lost other ranks, one of them.
  std::vector<RankFailure> failures;
  std::int64_t more_failures = 0;   // not in `failures`
  std::vector<Change> changes;      // of the environment and of run_start
  std::vector<Change> job_changes;  // lines of the job: only `before` or `after`
};
inline constexpr std::size_t kMaxFailures = 6;

// Time of rank 0, summed over updates. other_s: the rest of the updates.
struct PhaseSum {
  std::int64_t updates = 0;
  double data_s = 0;
  double compute_s = 0;
  double reduce_s = 0;  // without wait_s
  double wait_s = 0;
  double optimizer_s = 0;
  double other_s = 0;

  PhaseSum& operator+=(const PhaseSum& more);
};

// How often a rank was the slowest.
struct SlowestCount {
  std::string host;
  std::string phase;  // of the worst update
  std::int64_t updates = 0;
  double worst_ratio = 0;  // its busy time / what the plan expects
};

// The slowest ranks of a bin of updates.
struct SlowSum {
  std::int64_t updates = 0;
  std::map<std::int64_t, std::int64_t> ranks;  // number of updates by slowest rank

  SlowSum& operator+=(const SlowSum& more);
};

struct ReportData {
  std::string folder_name;
  WallTime read_at;
  Diagnosis diagnosis;
  RunFigures figures;
  std::vector<AttemptData> attempts;  // oldest first
  Curve loss;
  Curve gradient_norm;
  Curve learning_rate;
  Curve slow_updates;                  // dur_p99_s
  std::map<std::string, Curve> evals;  // by metric
  BinSums<PhaseSum> phases{240};
  BinSums<SlowSum> slow{96};
  std::map<std::int64_t, SlowestCount> slow_ranks;
  std::int64_t first_step = 0;  // of all attempts; 0: no update
  std::int64_t last_step = 0;
  double p50_s = 0;  // of the durations of all updates
  double p99_s = 0;
  double longest_s = 0;
  std::int64_t thinned = 0;           // updates without their own line (ThinEvents())
  std::int64_t on_target = 0;         // updates with exactly the planned number of samples
  std::vector<Event> saves;           // the newest
  std::vector<std::string> warnings;  // the newest, with times
  std::string job;                    // the resolved job; empty: unreadable
  bool best_is_saved = false;         // a checkpoint has the weights of diagnosis.state.best
};

// Errors: ReadRunState() and ListAttempts(). diagnosis.notes has problems of the files of the run.
// find: queries SLURM as doctor does; empty: only the files.
[[nodiscard]] Result<ReportData> ReadReportData(const std::string& run_dir, WallTime now,
                                                const JobFinder& find = {});

// Changes from one attempt of a run to the next.

// Changes of env.json, sorted, without variables that differ at every start (SLURM_RESTART_COUNT),
// and of the lines of job.txtpb. Empty if a file cannot be read.
[[nodiscard]] std::vector<Change> EnvironmentChanges(const Attempt& before, const Attempt& after);
[[nodiscard]] std::vector<Change> JobTextChanges(const Attempt& before, const Attempt& after);
// Changes between two run_start events: versions, nodes, devices.
[[nodiscard]] std::vector<Change> StartChanges(const Event& before, const Event& after);

// The non-empty lines that are not in both texts, in order, first those of `before`.
[[nodiscard]] std::vector<Change> LineChanges(const std::string& before, const std::string& after);

}  // namespace gaccd
