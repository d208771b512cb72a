#include "daemon/device/cuda/cublaslt_api.h"

#include <cublas_api.h>

#include "collectives/base/shared_library.h"
#include "collectives/base/strings.h"
#include "daemon/device/cuda/versions.h"

namespace gaccd {
namespace {

Result<CublasLtApi> Load() {
  GACCD_ASSIGN_OR_RETURN(const SharedLibrary library,
                         SharedLibrary::Open(StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR)));
  CublasLtApi api{};
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtGetVersion", &api.GetVersion));
  // First, as an older library may lack some of the other functions.
  GACCD_RETURN_IF_ERROR(CheckCublasLtVersion(api.GetVersion()));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtCreate", &api.Create));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtDestroy", &api.Destroy));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtMatmul", &api.Matmul));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescCreate", &api.MatmulDescCreate));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtMatmulDescDestroy", &api.MatmulDescDestroy));
  GACCD_RETURN_IF_ERROR(
      library.Find("cublasLtMatmulDescSetAttribute", &api.MatmulDescSetAttribute));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutCreate", &api.MatrixLayoutCreate));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtMatrixLayoutDestroy", &api.MatrixLayoutDestroy));
  GACCD_RETURN_IF_ERROR(
      library.Find("cublasLtMatmulPreferenceCreate", &api.MatmulPreferenceCreate));
  GACCD_RETURN_IF_ERROR(
      library.Find("cublasLtMatmulPreferenceDestroy", &api.MatmulPreferenceDestroy));
  GACCD_RETURN_IF_ERROR(
      library.Find("cublasLtMatmulPreferenceSetAttribute", &api.MatmulPreferenceSetAttribute));
  GACCD_RETURN_IF_ERROR(
      library.Find("cublasLtMatmulAlgoGetHeuristic", &api.MatmulAlgoGetHeuristic));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtMatmulAlgoCheck", &api.MatmulAlgoCheck));
  GACCD_RETURN_IF_ERROR(library.Find("cublasLtGetStatusString", &api.GetStatusString));
  return api;
}

}  // namespace

Status CheckCublasLtVersion(std::size_t loaded) {
  const LibraryVersions versions{.name = "cuBLASLt",
                                 .compiled = DecodeVersion(CUBLAS_VERSION),
                                 .loaded = DecodeVersion(static_cast<int>(loaded))};
  return CheckNotOlder({&versions, 1});
}

Result<const CublasLtApi*> LoadCublasLt() {
  // Loaded once, thread-safe; a failure is final.
  static const Result<CublasLtApi> kApi = Load();
  if (!kApi.ok()) return kApi.status();
  return &kApi.value();
}

}  // namespace gaccd
