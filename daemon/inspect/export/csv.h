// Events as CSV (RFC 4180).
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/export/text_sink.h"

namespace gaccd {

// A row an event, a column a key of any event of the run, in the order in which they first appear;
// the first column is attempt_dir. Null and missing values are empty. Reads the run twice. `notes`:
// what is wrong with its files. Errors: EventStream::Open(), TextSink.
Status ExportCsv(const std::string& run_dir, const std::string& attempt, TextSink& out,
                 std::vector<std::string>* notes);

}  // namespace gaccd
