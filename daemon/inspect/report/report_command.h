// `gaccd report RUN...`: the report of one run, or a comparison of several.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags_spec.h"

namespace gaccd {

struct ReportRequest {
  std::vector<std::string> folders;  // of runs, at most kMaxReportedRuns; empty: current folder
  std::string out;                   // empty: report.html in the run folder; only for one run
  PageLanguage language = PageLanguage::kBoth;
};

// Writes the page atomically and prints its path. Only reads the folders, so runs may be live.
// kUsage: no run folder, or several without `out`; kIo: the file.
Status RunReportCommand(const ReportRequest& request);

}  // namespace gaccd
