// For builds without CUDA.
#include "daemon/launch/device_choice.h"

namespace gaccd {

std::vector<LibraryVersions> GpuLibraries() { return {}; }

Status CheckGpuLibraries(bool) {
  return {ErrorKind::kUnavailable, "this gaccd was built without CUDA"};
}

Result<DnnFactory> FindDnnLibrary() { return CheckDnnLibrary(); }

Status CheckDnnLibrary() { return {ErrorKind::kUnavailable, "this gaccd was built without CUDA"}; }

}  // namespace gaccd
