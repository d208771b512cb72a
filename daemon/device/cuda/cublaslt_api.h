// The functions of cuBLASLt that gaccd calls, as a table: the library is loaded when a GPU is used,
// so that the binary starts where there is none, and tests put a stand-in there.
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

// Loads libcublasLt.so.13 (the major version compiled against) once; lives to the end of the
// process. kUnavailable: not found, a symbol is missing, or older than what gaccd was compiled
// with, both versions named.
Result<const CublasLtApi*> LoadCublasLt();

// kUnavailable, naming both versions, when a library whose GetVersion() is `loaded` is older than
// what gaccd was compiled with.
Status CheckCublasLtVersion(std::size_t loaded);

}  // namespace gaccd
