#pragma once

#include <vector>

#include "daemon/config/help.h"

namespace gaccd {

// For `gaccd version`: MPI, oneDNN, CUDA's libraries and NCCL, as loaded and as compiled with.
std::vector<Version> LoadedLibraries();

}  // namespace gaccd
