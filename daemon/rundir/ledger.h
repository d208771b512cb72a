// <run>/ledger.jsonl: how each attempt ended, across restarts; one line of flat JSON an attempt.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/rundir/attempt_verdict.h"

namespace gaccd {

// Oldest first; of a file of more than 1 MiB the newest, as many as that holds. What is no entry is
// passed over; no file, no entries.
[[nodiscard]] std::vector<LedgerEntry> ReadLedger(const std::string& path);

// One line, down to the disk; `mode` is that of a new file. kIo.
Status AppendToLedger(const std::string& path, LedgerEntry entry, unsigned mode = 0600);

}  // namespace gaccd
