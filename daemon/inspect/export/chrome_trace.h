// Events as a trace for chrome://tracing and https://ui.perfetto.dev (Trace Event Format).
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/export/text_sink.h"

namespace gaccd {

// A process an attempt. Its rows: updates with their phases, one after the other although reading
// and reducing overlap with computing; saves; evaluations and the resume; what went wrong.
// Counters: loss and samples per second. Arguments, errors: ExportCsv().
Status ExportChromeTrace(const std::string& run_dir, const std::string& attempt, TextSink& out,
                         std::vector<std::string>* notes);

}  // namespace gaccd
