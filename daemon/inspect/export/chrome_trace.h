// Events as a trace for chrome://tracing and https://ui.perfetto.dev (Trace Event Format).
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/export/text_sink.h"

namespace gaccd {

// One process per attempt, with rows for updates and their phases (in sequence, although reading
// and reducing overlap with computing), saves, evaluations and resume, and problems. Counters: loss
// and samples per second. Arguments, errors: see ExportCsv().
Status ExportChromeTrace(const std::string& run_dir, const std::string& attempt, TextSink& out,
                         std::vector<std::string>* notes);

}  // namespace gaccd
