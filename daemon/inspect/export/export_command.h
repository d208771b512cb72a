// `gaccd export PATH --format=...`: events and metrics for other programs.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

enum class ExportFormat : std::uint8_t { kCsv, kChromeTrace, kOtlpJson, kTensorboard, kPrometheus };

struct ExportRequest {
  std::string folder = ".";
  std::string attempt;  // see ListAttempts(); not for Prometheus
  ExportFormat format = ExportFormat::kCsv;
  std::string out;  // the file, for TensorBoard a folder; empty: standard output
};

// Logs problems of the files of the run as warnings. Prometheus: also accepts a folder of run
// folders; omits runs that wrote nothing for a day, and warns of runs that cannot be read. kUsage:
// no run folder, no such attempt, TensorBoard without a folder, Prometheus with an attempt; kIo:
// `out`.
Status RunExportCommand(const ExportRequest& request);

}  // namespace gaccd
