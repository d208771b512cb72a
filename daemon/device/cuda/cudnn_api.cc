#include "daemon/device/cuda/cudnn_api.h"

#include <dlfcn.h>

#include <filesystem>

#include "collectives/base/shared_library.h"
#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Result<CudnnApi> Load() {
  GACCD_ASSIGN_OR_RETURN(const SharedLibrary library,
                         SharedLibrary::Open(StrCat("libcudnn.so.", CUDNN_MAJOR)));
  CudnnApi api{.library = library.handle()};
  GACCD_RETURN_IF_ERROR(library.Find("cudnnGetVersion", &api.GetVersion));
  GACCD_RETURN_IF_ERROR(CheckCudnnVersion(api.GetVersion()));
  GACCD_RETURN_IF_ERROR(library.Find("cudnnGetCudartVersion", &api.GetCudartVersion));
  GACCD_RETURN_IF_ERROR(library.Find("cudnnCreate", &api.Create));
  GACCD_RETURN_IF_ERROR(library.Find("cudnnDestroy", &api.Destroy));
  GACCD_RETURN_IF_ERROR(library.Find("cudnnGetErrorString", &api.GetErrorString));
  GACCD_RETURN_IF_ERROR(library.Find("cudnnSetStream", &api.SetStream));
  return api;
}

}  // namespace

Status CheckCudnnVersion(std::size_t loaded) {
  const LibraryVersions versions{.name = "cuDNN",
                                 .compiled = DecodeVersion(CUDNN_VERSION),
                                 .loaded = DecodeVersion(static_cast<int>(loaded)),
                                 .oldest = DecodeVersion(kOldestCudnn)};
  if (versions.loaded->major > CUDNN_MAJOR) {
    return {ErrorKind::kUnavailable,
            StrCat("cuDNN: expected ", CUDNN_MAJOR, ".x, found ", ToText(*versions.loaded))};
  }
  return CheckNotOlder({&versions, 1});
}

Status CheckNvrtc(std::size_t cudart_version, const std::string& folder) {
  const std::size_t major = cudart_version / 1000;
  const std::string name = StrCat("libnvrtc.so.", major);
  const Status found = SharedLibrary::Open(name).status();
  if (found.ok()) return found;
  for (const std::string& where : {std::string("/"), std::string("/../../cuda_nvrtc/lib/"),
                                   StrCat("/../../cu", major, "/lib/")}) {
    if (SharedLibrary::Open(StrCat(folder, where, name)).ok()) return Status::Ok();
  }
  return {ErrorKind::kUnavailable,
          StrCat("cuDNN compiles its kernels with NVRTC, which is not found: ", found.message())};
}

Status CheckNvrtc(const CudnnApi& api) {
  Dl_info cudnn{};
  const bool found = ::dladdr(reinterpret_cast<void*>(api.GetVersion), &cudnn) != 0;
  const std::filesystem::path path = found ? cudnn.dli_fname : "";
  return CheckNvrtc(api.GetCudartVersion(), path.parent_path().string());
}

Result<const CudnnApi*> LoadCudnn() {
  // Loaded once, thread-safe; a failure is final.
  static const Result<CudnnApi> kApi = Load();
  if (!kApi.ok()) return kApi.status();
  return &kApi.value();
}

}  // namespace gaccd
