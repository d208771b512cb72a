// Reserves a few blocks of the run folder's disk at the start of an attempt, so that the verdict,
// STATUS.json and the ledger can be written even if the disk is full at its end.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

// Creates <attempt_dir>/.space, 64 KiB. kIo if the disk is full.
[[nodiscard]] Status ReserveDiskSpace(const std::string& attempt_dir, unsigned mode);

// Removes it. Called by the process that writes the end of the attempt: rank 0, a rank that
// replaces it, or `gaccd verdict`. A missing file is not an error.
void ReleaseDiskSpace(const std::string& attempt_dir);

}  // namespace gaccd
