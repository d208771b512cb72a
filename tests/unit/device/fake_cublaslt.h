// A cuBLASLt that computes nothing: its algorithms fill C with ones, as MatmulTrial expects them,
// and take their time, so that a test decides which is the fastest, which are refused, and which
// call fails; it counts what was called and what is left. One per process, like the library.
#pragma once

#include <cublas_api.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "daemon/device/cuda/cublaslt_api.h"

namespace gaccd {

struct FakeAlgorithm {
  int id = 0;
  int microseconds = 0;
  cublasStatus_t runs = CUBLAS_STATUS_SUCCESS;     // what cublasLtMatmul answers
  cublasStatus_t checked = CUBLAS_STATUS_SUCCESS;  // what cublasLtMatmulAlgoCheck answers
  bool drops_tail = false;                         // C is not that of all k terms
  std::size_t workspace = 0;
  cublasStatus_t state = CUBLAS_STATUS_SUCCESS;  // as the heuristic tells it
};

struct FakeCublasLt {
  std::vector<FakeAlgorithm> offered;
  cublasStatus_t heuristic = CUBLAS_STATUS_SUCCESS;
  std::size_t version = CUBLAS_VERSION;
  // The nth call from now of "cublasLt..." gives this status and does nothing else.
  std::string failing;
  int failing_call = 0;
  cublasStatus_t failure = CUBLAS_STATUS_INTERNAL_ERROR;

  int live = 0;             // handles, descriptions, layouts, preferences
  int heuristics = 0;       // questions
  std::map<int, int> runs;  // by the id of the algorithm; also while capturing
  // The different values among so many 16-bit words of the library's first operand, of all runs.
  std::size_t looked_at = 0;
  std::set<std::uint16_t> distinct;
};

// As new: nothing offered, nothing counted. REQUIRES: nothing is left of the last test.
FakeCublasLt& ResetFakeCublasLt();
const CublasLtApi& FakeCublasLtApi();

}  // namespace gaccd
