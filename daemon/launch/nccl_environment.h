// The environment variables that NCCL needs, before this process has threads.
#pragma once

#include "daemon/config/flags.h"

namespace gaccd {

// Sets NcclSettings() and those for equal bits (`deterministic`: the job's) and for ranks that
// share a GPU (--allow-gpu-sharing); what the user has set stays. Not thread-safe, as setenv.
void SetNcclEnvironment(const Flags& flags, bool deterministic);

}  // namespace gaccd
