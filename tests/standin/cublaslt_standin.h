// A stand-in of cuBLASLt on the stand-in of the CUDA runtime. It takes what the real one takes and
// checks it: column-major layouts, types, alignments that were promised, workspace. A mistake is
// reported on stderr and by the status that the real one gives.
//
// The heuristic offers several algorithms, as different as those of the real library:
//   0  wants 16-byte aligned addresses and columns            sums along k in order
//   1  takes every address                                    sums along k in order
//   2  splits k in two, in the workspace (COMPUTE_TYPE)       other last bits than 0 and 1
//   3  splits k in two and adds in any order (INPLACE)        not the same bits from run to run
//   4  is offered, and refuses when it is run                 (only with Options::one_refuses)
// and among the results one whose state says that it cannot be used.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "daemon/device/cuda/cublaslt_api.h"

namespace gaccd::standin {

const CublasLtApi& StandInCublasLt();

inline constexpr int kAllAlgorithms = -2;
struct CublasLtOptions {
  std::size_t version = CUBLAS_VERSION;
  std::set<cublasLtEpilogue_t> not_supported;  // the heuristic gives CUBLAS_STATUS_NOT_SUPPORTED
  std::set<cublasLtEpilogue_t> no_candidates;  // it gives 0 results
  std::set<cublasLtEpilogue_t> refused;        // offered, but no algorithm of it runs
  bool one_refuses = false;
  // The algorithm that leaves out the last k % 8 terms. -1: none.
  int drops_tail = -1;
  // The algorithm that is fastest: all others take `delay_us` longer. -1: none is slowed down.
  int fastest = -1;
  std::set<cublasLtEpilogue_t> slow;  // all products with such an epilogue do, too
  int delay_us = 300;
};
// Also sets the counters to 0. Not to be called while products run.
void SetCublasLt(const CublasLtOptions& options = {});

struct CublasLtCounters {
  std::int64_t heuristics = 0;  // calls of MatmulAlgoGetHeuristic
  std::int64_t checks = 0;      // of MatmulAlgoCheck
  std::int64_t products = 0;    // of Matmul that were accepted
  // With a limit of multiprocessors, that ran, also in graphs.
  std::int64_t ran_limited = 0;
  std::vector<std::int64_t> products_of = std::vector<std::int64_t>(5);  // by algorithm
  std::map<cublasLtEpilogue_t, std::int64_t> products_with;              // by epilogue
};
CublasLtCounters CountCublasLt();

}  // namespace gaccd::standin
