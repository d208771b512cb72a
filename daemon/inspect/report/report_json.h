// What a report tells, as one JSON object: what page.html draws. Its sample data has every member.
#pragma once

#include <span>
#include <string>

#include "daemon/config/flags_spec.h"
#include "daemon/inspect/report/report_data.h"

namespace gaccd {

// {"language": "en", "zh" or "both", "read_at": ..., "runs": [...]}. One run in full; of two or
// more, at most kMaxReportedRuns, their figures, their curves, shorter, and where their jobs differ
// from the first one. Times are seconds, points in time since 1970; what is not known or not finite
// is null. Words are those of the run, but advice and commands. There is no '<', so that it can be
// in an HTML script element. Pure. REQUIRES: there is a run.
[[nodiscard]] std::string ReportJson(std::span<const ReportData> runs, PageLanguage language);

}  // namespace gaccd
