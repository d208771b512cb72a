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
  std::string run;  // unique among the runs: the name of its folder
  RunState state;
  RunFigures figures;
  double written_s = 0;             // since 1970, as below: STATUS.json
  std::optional<double> job_end_s;  // when SLURM ends the job
  std::vector<Event> ranks;         // the newest line of each rank; rank_lines.h
};

// Every metric has the labels run and slurm_job_id; names begin with gaccd_, units are base units,
// times are gauges of seconds since 1970: a file of the collector has no time stamps. Counters
// begin at the begin of the run. Pure; thread-safe.
[[nodiscard]] std::string PrometheusText(std::span<const RunMetrics> runs);

// `text` in quotes, as the value of a label: UTF-8, with its escapes.
[[nodiscard]] std::string LabelText(std::string_view text);

}  // namespace gaccd
