// PrometheusState: the results of an export to Prometheus in a file, so that the next export only
// reads what was written since.
#pragma once

#include <memory>
#include <string>

#include "collectives/base/result.h"
#include "daemon/inspect/export/run_figures.h"

namespace gaccd {

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
