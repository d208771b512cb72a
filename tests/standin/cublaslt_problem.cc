#include "tests/standin/cublaslt_problem.h"

#include <cstdio>

#include "collectives/base/strings.h"

namespace gaccd::standin {
namespace {

bool WideColumns(const Layout& layout) {
  return static_cast<std::size_t>(layout.ld) * ElementBytes(layout.type) % 16 == 0;
}

}  // namespace

CublasLtSetup& Setup() {
  static auto* setup = new CublasLtSetup;
  return *setup;
}

CublasLtOptions SetupOptions() {
  const std::lock_guard lock(Setup().mutex);
  return Setup().options;
}

bool HasAux(const Description& d) {
  return d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX ||
         d.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS || d.epilogue == CUBLASLT_EPILOGUE_DGELU;
}

cublasStatus_t Invalid(const std::string& why) {
  std::fprintf(stderr, "stand-in cuBLASLt: %s\n", why.c_str());
  return CUBLAS_STATUS_INVALID_VALUE;
}

std::size_t ElementBytes(cudaDataType type) { return type == CUDA_R_32F ? 4 : 2; }

ValueType ToValueType(cudaDataType type) {
  if (type == CUDA_R_16BF) return ValueType::kBf16;
  return type == CUDA_R_16F ? ValueType::kFp16 : ValueType::kF32;
}

cublasStatus_t CheckProblem(const Description& d, const Layout& a, const Layout& b, const Layout& c,
                            const Layout& out) {
  if (c.rows != out.rows || c.columns != out.columns || c.type != out.type) {
    return Invalid(StrCat("C is [", c.rows, ", ", c.columns, "], D is [", out.rows, ", ",
                          out.columns, "], or their types differ"));
  }
  const bool ta = d.transpose_a != CUBLAS_OP_N;
  const bool tb = d.transpose_b != CUBLAS_OP_N;
  const std::int64_t m = ta ? a.columns : a.rows;
  const std::int64_t k = ta ? a.rows : a.columns;
  const std::int64_t n = tb ? b.rows : b.columns;
  const std::int64_t k_of_b = tb ? b.columns : b.rows;
  if (m != out.rows || n != out.columns || k != k_of_b) {
    return Invalid(StrCat("op(A) is [", m, ", ", k, "], op(B) is [", k_of_b, ", ", n, "], D is [",
                          out.rows, ", ", out.columns, "]"));
  }
  const bool types = a.type == b.type && (out.type == CUDA_R_32F || out.type == a.type);
  const bool compute = d.compute == CUBLAS_COMPUTE_32F ||
                       (d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type == CUDA_R_32F);
  if (!types || !compute) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (d.bias_type != -1 && d.bias_type != out.type) return CUBLAS_STATUS_NOT_SUPPORTED;
  switch (d.epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
      break;
    default:
      return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (HasAux(d) && (d.aux_ld % 8 != 0 || d.aux_ld < out.rows)) {
    return Invalid(StrCat("the leading dimension of aux is ", d.aux_ld, ", D has ", out.rows,
                          " rows, wanted are at least as many and a multiple of 8"));
  }
  return SetupOptions().not_supported.contains(static_cast<cublasLtEpilogue_t>(d.epilogue))
             ? CUBLAS_STATUS_NOT_SUPPORTED
             : CUBLAS_STATUS_SUCCESS;
}

std::uint64_t ProblemKey(const Description& d, const Layout& a, const Layout& out) {
  return static_cast<std::uint64_t>(d.compute) << 32 | static_cast<std::uint64_t>(a.type) << 16 |
         static_cast<std::uint64_t>(out.type) << 8 | static_cast<std::uint64_t>(d.multiprocessors);
}

std::size_t WorkspaceBytes(int algorithm, const Layout& out) {
  const bool split = algorithm == 2 || algorithm == 3;
  return split ? static_cast<std::size_t>(out.rows * out.columns) * sizeof(float) : 0;
}

bool Offered(int algorithm, const Description& d, const std::array<const Layout*, 4>& layouts,
             const Preference& preference) {
  if (algorithm == 0) {
    for (std::size_t i = 0; i < layouts.size(); ++i) {
      if (preference.alignment[i] % 16 != 0 || !WideColumns(*layouts[i])) return false;
    }
  }
  const bool ends_once = d.epilogue != CUBLASLT_EPILOGUE_DEFAULT;
  if (algorithm == 2 && (preference.reductions & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE) == 0) {
    return false;
  }
  if (algorithm == 3 &&
      ((preference.reductions & CUBLASLT_REDUCTION_SCHEME_INPLACE) == 0 || ends_once)) {
    return false;
  }
  if (algorithm == kRefuses && !SetupOptions().one_refuses) return false;
  return WorkspaceBytes(algorithm, *layouts[3]) <= preference.workspace;
}

cublasLtMatmulHeuristicResult_t MakeHeuristicResult(int algorithm, const Description& d,
                                                    const Layout& a, const Layout& out) {
  cublasLtMatmulHeuristicResult_t result{};
  result.algo.data[0] = kMagic;
  result.algo.data[1] = static_cast<std::uint64_t>(algorithm);
  result.algo.data[2] = ProblemKey(d, a, out);
  result.workspaceSize = WorkspaceBytes(algorithm, out);
  result.state = CUBLAS_STATUS_SUCCESS;
  result.wavesCount = 1;
  return result;
}

}  // namespace gaccd::standin
