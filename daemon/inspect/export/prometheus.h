// Metrics of runs as Prometheus text, for the textfile collector of node_exporter.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/export/run_figures.h"
#include "daemon/inspect/watch/run_state.h"

namespace gaccd {

struct RunMetrics {
  std::string run;  // name of its folder, unique among the runs
  RunState state;
  RunFigures figures;
  double written_s = 0;             // when STATUS.json was written; since 1970, as job_end_s
  std::optional<double> job_end_s;  // when SLURM ends the job
  std::vector<Event> ranks;         // the newest line of each rank (event_stream.h)
};

// Every metric has the labels run and slurm_job_id. Names begin with gaccd_, units are base units.
// Times are gauges of seconds since 1970, because the collector's files have no time stamps.
// Counters start with the run. Pure; thread-safe.
[[nodiscard]] std::string PrometheusText(std::span<const RunMetrics> runs);

// `text` as the quoted and escaped value of a label, in UTF-8.
[[nodiscard]] std::string LabelText(std::string_view text);

// PrometheusState: the results of an export to Prometheus in a file, so that the next export only
// reads what was written since.

// The figures always cover all events. A run is read again from its start unless its files are
// those of the state with appended lines: not if a file became shorter or was replaced, a crash
// record or verdict was added to the part already read, or an attempt went far back. Not
// thread-safe.
class PrometheusState {
 public:
  // Empty: no run was read.
  PrometheusState();
  PrometheusState(PrometheusState&&) noexcept;
  PrometheusState& operator=(PrometheusState&&) noexcept;
  ~PrometheusState();

  // The state of a file of Write(). Empty if it is missing or written by another build of gaccd, or
  // if it is damaged or unreadable, which is reported in `problem`.
  static PrometheusState Read(const std::string& path, std::string* problem);
  // Replaces the file by the runs that were read with ReadFigures() since. kIo.
  [[nodiscard]] Status Write(const std::string& path) const;

  // Errors: EventStream::Open().
  [[nodiscard]] Result<RunFigures> ReadFigures(const std::string& folder);

 private:
  struct Runs;
  std::unique_ptr<Runs> runs_;
};

}  // namespace gaccd
