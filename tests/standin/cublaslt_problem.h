// What a product is, as the stand-in of cuBLASLt keeps it, and which algorithms there are for it.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <mutex>
#include <string>

#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/host_gemm.h"

namespace gaccd::standin {

struct Description {
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  std::int32_t transpose_a = CUBLAS_OP_N;
  std::int32_t transpose_b = CUBLAS_OP_N;
  std::uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  void* bias = nullptr;
  std::int32_t bias_type = -1;
  void* aux = nullptr;
  std::int64_t aux_ld = 0;
  std::int32_t multiprocessors = 0;
};

struct Layout {
  cudaDataType type = CUDA_R_32F;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t ld = 0;
};

struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
  std::array<std::uint32_t, 4> alignment = {256, 256, 256, 256};  // A, B, C, D
};

constexpr int kAlgorithms = 5;
constexpr int kRefuses = 4;
constexpr std::uint64_t kMagic = 0x67616363646c7401;

// What SetCublasLt() set.
struct CublasLtSetup {
  std::mutex mutex;
  CublasLtOptions options;
  CublasLtCounters counters;
};
CublasLtSetup& Setup();
CublasLtOptions SetupOptions();

// Whether the epilogue has a matrix of its own, the input of GELU.
bool HasAux(const Description& d);

// Tells why on stderr.
cublasStatus_t Invalid(const std::string& why);

std::size_t ElementBytes(cudaDataType type);
ValueType ToValueType(cudaDataType type);

// Whether everything is compatible, before any algorithm is looked for.
cublasStatus_t CheckProblem(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                            const Layout& out);
// What an algorithm was configured for; it fits nothing else.
std::uint64_t ProblemKey(const Description& d, const Layout& a, const Layout& out);
std::size_t WorkspaceBytes(int algorithm, const Layout& out);
// `layouts` of A, B, C, D.
bool Offered(int algorithm, const Description& d, const std::array<const Layout*, 4>& layouts,
             const Preference& preference);
cublasLtMatmulHeuristicResult_t MakeHeuristicResult(int algorithm, const Description& d,
                                                    const Layout& a, const Layout& out);

}  // namespace gaccd::standin
