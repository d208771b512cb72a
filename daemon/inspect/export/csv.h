// Events as CSV (RFC 4180).
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/export/text_sink.h"

namespace gaccd {

// One row per event and one column per key, in the order in which keys first appear; the first
// column is attempt_dir. Null and missing values are empty. Reads the run twice. notes: set to
// problems of its files. Errors: EventStream::Open(), TextSink.
Status ExportCsv(const std::string& run_dir, const std::string& attempt, TextSink& out,
                 std::vector<std::string>* notes);

}  // namespace gaccd
