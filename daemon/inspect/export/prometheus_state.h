// PrometheusState: what an export to Prometheus has read of the runs, kept in a file, so that the
// next one reads only what was written since.
#pragma once

#include <memory>
#include <string>

#include "collectives/base/result.h"
#include "daemon/inspect/export/run_figures.h"

namespace gaccd {

// The figures are always those of all events. A run is read from its begin where its files are not
// those of the state with more appended: one became shorter or was replaced, a crash record or a
// verdict was added to what was read, or an attempt went far back. Not thread-safe.
class PrometheusState {
 public:
  // Nothing is known of any run.
  PrometheusState();
  PrometheusState(PrometheusState&&) noexcept;
  PrometheusState& operator=(PrometheusState&&) noexcept;
  ~PrometheusState();

  // What Write() left in this file. A file of another build of gaccd is ignored; of one that is
  // damaged or cannot be read, `problem` says so. Either way nothing is known then.
  static PrometheusState Read(const std::string& path, std::string* problem);
  // Replaces the file, by the runs that FiguresOf() has read since. kIo.
  [[nodiscard]] Status Write(const std::string& path) const;

  // Errors: EventStream::Open().
  [[nodiscard]] Result<RunFigures> FiguresOf(const std::string& folder);

 private:
  struct Runs;
  std::unique_ptr<Runs> runs_;
};

}  // namespace gaccd
