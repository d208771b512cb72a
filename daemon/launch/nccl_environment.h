// Environment variables for NCCL; set before this process has threads.
#pragma once

#include "daemon/config/flags.h"

namespace gaccd {

// Sets NcclSettings(), and settings for reproducible results (`deterministic`, of the job) and for
// ranks that share a GPU (--allow-gpu-sharing). Variables set by the user are kept. Not
// thread-safe, as setenv.
void SetNcclEnvironment(const Flags& flags, bool deterministic);

}  // namespace gaccd
