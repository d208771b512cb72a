// <run>/ledger.jsonl: the result of each attempt, across restarts; one line of flat JSON per
// attempt.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/rundir/attempt_verdict.h"

namespace gaccd {

// Oldest first; of a file of more than 1 MiB the newest entries that fit. Invalid lines are
// skipped; empty if there is no file.
[[nodiscard]] std::vector<LedgerEntry> ReadLedger(const std::string& path);

// Appends one line, durably; mode: for a new file. kIo.
Status AppendToLedger(const std::string& path, LedgerEntry entry, unsigned mode = 0600);

}  // namespace gaccd
