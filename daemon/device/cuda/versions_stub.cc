#include "daemon/device/cuda/versions.h"

namespace gaccd {

std::vector<LibraryVersions> CudaLibraries() { return {}; }

}  // namespace gaccd
