// The verb `gaccd selftest`.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Prints its table; kInternal when a check failed. Errors are not printed here.
Status RunSelftest(const Flags& flags);

}  // namespace gaccd
