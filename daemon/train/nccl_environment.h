// What NCCL has to be told by environment variables, before this process has threads.
#pragma once

#include "daemon/config/flags.h"

namespace gaccd {

// Sets NcclSettings() and, as flags and job ask for them, those for equal bits and for ranks that
// share a GPU; what the user has set stays. Not thread-safe, as setenv. A job that cannot be read
// is not reported here: the run does so.
void SetNcclEnvironment(const Flags& flags);

}  // namespace gaccd
