// What run.h says of devices and libraries.
#include <string>
#include <utility>
#include <vector>

#include "collectives/bootstrap/mpi_version.h"
#include "daemon/config/job_text.h"
#include "daemon/config/plan_command.h"
#include "daemon/device/cpu/onednn_version.h"
#include "daemon/preflight/device_choice.h"
#include "daemon/preflight/gpu_libraries.h"
#include "daemon/train/run.h"

namespace gaccd {
Status CheckPlannedDevice(const Flags& flags) {
  if (!flags.job) return Status::Ok();
  GACCD_ASSIGN_OR_RETURN(Job job, LoadJob(*flags.job));
  GACCD_ASSIGN_OR_RETURN(job, OverlayFlags(std::move(job), flags));
  return job.device == Device::kCuda ? CheckModelOnGpu(job) : Status::Ok();
}

std::vector<Version> LoadedLibraries() {
  std::vector<Version> versions = {{"MPI", MpiVersion()}, {"oneDNN", OneDnnVersion()}};
  for (const LibraryVersions& library : GpuLibraries()) {
    // "NCCL 2.28.9 (compiled with 2.28.9)" without its name.
    std::string text = ToText(library).substr(library.name.size() + 1);
    if (!CheckNotOlder({&library, 1}).ok()) text += "; older, so it is refused";
    versions.emplace_back(library.name, std::move(text));
  }
  if (versions.size() == 2) versions.emplace_back("CUDA", "not built in");
  return versions;
}

}  // namespace gaccd
