// A report as one HTML file that needs no network; script only for what is shown at the pointer.
#pragma once

#include <span>
#include <string>

#include "daemon/report/html.h"
#include "daemon/report/report_data.h"

namespace gaccd {

// One run in full; two or more, at most kMaxReportedRuns, side by side: a table, their curves in
// common charts, and where their jobs differ. Pure. REQUIRES: there is a story.
[[nodiscard]] std::string ReportPage(std::span<const ReportData> stories, PageLanguage language);

// comparison.cc
void WriteComparison(std::span<const ReportData> stories, Html& out);

// style.cc, script.cc: CSS and JavaScript.
extern const char* const kPageStyle;
extern const char* const kPageScript;

}  // namespace gaccd
