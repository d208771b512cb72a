#include "collectives/base/shared_library.h"
#include "collectives/comm/nccl_api.h"
#include "daemon/device/cuda/cublaslt_api.h"
#include "daemon/device/cuda/cudnn_api.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/launch/device_choice.h"

namespace gaccd {
namespace {

LibraryVersions NcclLibrary() {
  LibraryVersions nccl{.name = "NCCL",
                       .compiled = DecodeVersion(NCCL_VERSION_CODE),
                       .oldest = DecodeVersion(kOldestNccl)};
  const Result<SharedLibrary> library = SharedLibrary::Open("libnccl.so.2");
  if (!library.ok()) {
    nccl.detail = library.status().message();
    return nccl;
  }
  decltype(NcclApi::GetVersion) get_version = nullptr;
  int code = 0;
  if (Status found = library->Find("ncclGetVersion", &get_version); !found.ok()) {
    nccl.detail = found.message();
  } else if (get_version(&code) == ncclSuccess) {
    nccl.loaded = DecodeVersion(code);
  }
  return nccl;
}

}  // namespace

std::vector<LibraryVersions> GpuLibraries() {
  std::vector<LibraryVersions> libraries = CudaLibraries();
  libraries.push_back(NcclLibrary());
  return libraries;
}

Status CheckGpuLibraries(bool with_nccl) {
  GACCD_RETURN_IF_ERROR(LoadCublasLt().status());
  return with_nccl ? LoadNccl().status() : Status::Ok();
}

Result<DnnFactory> FindDnnLibrary() { return FindCudnn(); }

Status CheckDnnLibrary() {
  GACCD_RETURN_IF_ERROR(FindCudnn().status());
  GACCD_ASSIGN_OR_RETURN(const CudnnApi* cudnn, LoadCudnn());
  return CheckNvrtc(*cudnn);
}

}  // namespace gaccd
