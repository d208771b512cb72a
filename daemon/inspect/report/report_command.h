// `gaccd report RUN...`: the report of one run, or a comparison of several.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags_spec.h"

namespace gaccd {

struct ReportRequest {
  std::vector<std::string> folders;  // of runs, at most kMaxReportedRuns; none: the current one
  std::string out;                   // empty: report.html in the folder, of one run
  PageLanguage language = PageLanguage::kBoth;
};

// Writes the page, which appears whole, and prints its name. Reads only the folders, so also of
// live runs. kUsage: no run folder, or several without `out`; kIo: the file.
Status RunReportCommand(const ReportRequest& request);

}  // namespace gaccd
