// `gaccd export PATH --format=...`: events and metrics for other programs.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

enum class ExportFormat : std::uint8_t { kCsv, kChromeTrace, kOtlpJson, kTensorboard, kPrometheus };

struct ExportRequest {
  std::string folder = ".";
  std::string attempt;  // as ListAttempts() takes it; not of Prometheus
  ExportFormat format = ExportFormat::kCsv;
  std::string out;  // the file; of TensorBoard a folder; empty: standard output
};

// Problems of the files of the run are logged as warnings. Prometheus: also a folder of run
// folders; runs that wrote nothing for a day are left out, and a run that cannot be read is a
// warning. kUsage: no run folder, no such attempt, TensorBoard without a folder; kIo: `out`.
Status RunExportCommand(const ExportRequest& request);

}  // namespace gaccd
