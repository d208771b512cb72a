// `gaccd report RUN...`: the report of one run, or a comparison of several.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/config/flags_spec.h"
#include "daemon/inspect/report/report_data.h"

namespace gaccd {

struct ReportRequest {
  std::vector<std::string> folders;  // of runs, at most kMaxReportedRuns; empty: current folder
  std::string out;                   // empty: report.html in the run folder; only for one run
  PageLanguage language = PageLanguage::kBoth;
};

// Writes the page atomically and prints its path. Only reads the folders, so runs may be live.
// kUsage: no run folder, or several without `out`; kIo: the file.
Status RunReportCommand(const ReportRequest& request);

// The data of the page as one JSON object, which page.html draws; its sample data has every member.
// {"language": "en", "zh" or "both", "read_at": ..., "runs": [...]}. One run in full; for several,
// at most kMaxReportedRuns, their figures, shorter curves, and differences of their jobs from the
// first. Times are in seconds, time points since 1970; unknown and non-finite values are null. All
// texts are those of the run, except advice and commands. Contains no '<', so it is valid in an
// HTML script element. Pure. REQUIRES: at least one run.
[[nodiscard]] std::string ReportJson(std::span<const ReportData> runs, PageLanguage language);

// The source file page.html. It draws the JSON in its element `data`; here that of a sample run.
[[nodiscard]] std::string_view PageHtml();

}  // namespace gaccd
