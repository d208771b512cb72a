#include "daemon/verbs/loaded_libraries.h"

#include <string>
#include <utility>

#include "collectives/bootstrap/mpi_version.h"
#include "daemon/device/cpu/onednn_version.h"
#include "daemon/launch/gpu_libraries.h"

namespace gaccd {

std::vector<Version> LoadedLibraries() {
  std::vector<Version> versions = {{"MPI", MpiVersion()}, {"oneDNN", OneDnnVersion()}};
  for (const LibraryVersions& library : GpuLibraries()) {
    // "NCCL 2.28.9 (compiled with 2.28.9)" without the name.
    std::string text = ToText(library).substr(library.name.size() + 1);
    if (!CheckNotOlder({&library, 1}).ok()) text += "; older, so it is refused";
    versions.emplace_back(library.name, std::move(text));
  }
  if (versions.size() == 2) versions.emplace_back("CUDA", "not built in");
  return versions;
}

}  // namespace gaccd
