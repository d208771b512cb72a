// A few blocks of the run folder's disk, taken at the start of an attempt: where the disk is full
// at its end, the verdict, STATUS.json and the ledger still fit.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

// Makes <attempt_dir>/.space, 64 KiB. kIo where the disk has no room for it.
[[nodiscard]] Status KeepSpareSpace(const std::string& attempt_dir, unsigned mode);

// Removes it. Called by the process that writes how the attempt ended: rank 0, a rank in its place,
// or `gaccd verdict`. A file that is not there is no error.
void FreeSpareSpace(const std::string& attempt_dir);

}  // namespace gaccd
