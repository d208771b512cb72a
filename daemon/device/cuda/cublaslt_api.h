// The cuBLASLt functions used by gaccd, as a table: the library is loaded on demand, so that the
// binary starts without it, and tests can replace it.
#pragma once

#include <cublasLt.h>

#include <cstddef>

#include "collectives/base/result.h"

namespace gaccd {

struct CublasLtApi {
  decltype(&::cublasLtCreate) Create;
  decltype(&::cublasLtDestroy) Destroy;
  decltype(&::cublasLtGetVersion) GetVersion;
  decltype(&::cublasLtMatmul) Matmul;
  decltype(&::cublasLtMatmulDescCreate) MatmulDescCreate;
  decltype(&::cublasLtMatmulDescDestroy) MatmulDescDestroy;
  decltype(&::cublasLtMatmulDescSetAttribute) MatmulDescSetAttribute;
  decltype(&::cublasLtMatrixLayoutCreate) MatrixLayoutCreate;
  decltype(&::cublasLtMatrixLayoutDestroy) MatrixLayoutDestroy;
  decltype(&::cublasLtMatmulPreferenceCreate) MatmulPreferenceCreate;
  decltype(&::cublasLtMatmulPreferenceDestroy) MatmulPreferenceDestroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) MatmulPreferenceSetAttribute;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) MatmulAlgoGetHeuristic;
  decltype(&::cublasLtMatmulAlgoCheck) MatmulAlgoCheck;
  decltype(&::cublasLtGetStatusString) GetStatusString;
};

// Loads libcublasLt.so.13 (the major version compiled against) once; never unloaded. kUnavailable:
// not found, a symbol is missing, or older than the version that gaccd was compiled with (with both
// versions).
Result<const CublasLtApi*> LoadCublasLt();

// kUnavailable, with both versions, if a library whose GetVersion() is `loaded` is older than the
// version that gaccd was compiled with.
Status CheckCublasLtVersion(std::size_t loaded);

}  // namespace gaccd
