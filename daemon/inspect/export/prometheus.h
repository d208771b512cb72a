// Metrics of runs as Prometheus text, for the textfile collector of node_exporter.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/inspect/export/run_figures.h"
#include "daemon/inspect/watch/run_state.h"

namespace gaccd {

struct RunMetrics {
  std::string run;  // name of its folder, unique among the runs
  RunState state;
  RunFigures figures;
  double written_s = 0;             // when STATUS.json was written; since 1970, as job_end_s
  std::optional<double> job_end_s;  // when SLURM ends the job
  std::vector<Event> ranks;         // the newest line of each rank (rank_lines.h)
};

// Every metric has the labels run and slurm_job_id. Names begin with gaccd_, units are base units.
// Times are gauges of seconds since 1970, because the collector's files have no time stamps.
// Counters start with the run. Pure; thread-safe.
[[nodiscard]] std::string PrometheusText(std::span<const RunMetrics> runs);

// `text` as the quoted and escaped value of a label, in UTF-8.
[[nodiscard]] std::string LabelText(std::string_view text);

}  // namespace gaccd
