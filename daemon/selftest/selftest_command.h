// The verb `gaccd selftest`.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Prints the results; kInternal if a check failed. Errors are not printed here.
Status RunSelftest(const Flags& flags);

}  // namespace gaccd
