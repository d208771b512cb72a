// Events as OpenTelemetry metrics: lines of JSON that the collector's otlpjsonfile receiver reads.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/export/text_sink.h"

namespace gaccd {

// Every line is an ExportMetricsServiceRequest in protobuf's JSON: gauges of scalars.h for up to
// kEventsOfALine events of one attempt, which is the resource (service.name, gaccd.run,
// gaccd.attempt, slurm.job.id, host.name). Arguments, errors: see ExportCsv().
inline constexpr int kEventsOfALine = 100;
Status ExportOtlpJson(const std::string& run_dir, const std::string& attempt, TextSink& out,
                      std::vector<std::string>* notes);

}  // namespace gaccd
