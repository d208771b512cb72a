#include "tests/standin/cublaslt_standin.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <mutex>
#include <tuple>

#include "collectives/base/strings.h"
#include "tests/standin/cublaslt_problem.h"
#include "tests/standin/fatal.h"
#include "tests/standin/host_gemm.h"
#include "tests/standin/standin.h"

namespace gaccd::standin {
namespace {

const Description& Get(cublasLtMatmulDesc_t handle) {
  return *reinterpret_cast<const Description*>(handle);
}
const Layout& Get(cublasLtMatrixLayout_t handle) {
  return *reinterpret_cast<const Layout*>(handle);
}

cublasStatus_t Create(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(new std::uint64_t(kMagic));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t Destroy(cublasLtHandle_t handle) {
  delete reinterpret_cast<std::uint64_t*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

std::size_t GetVersion() { return SetupOptions().version; }

cublasStatus_t DescCreate(cublasLtMatmulDesc_t* handle, cublasComputeType_t compute,
                          cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  auto* description = new Description;
  description->compute = compute;
  *handle = reinterpret_cast<cublasLtMatmulDesc_t>(description);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t DescDestroy(cublasLtMatmulDesc_t handle) {
  delete reinterpret_cast<Description*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

template <typename T>
cublasStatus_t Set(T* field, const void* value, std::size_t bytes) {
  if (value == nullptr || bytes != sizeof(T)) {
    return Invalid(StrCat("an attribute has ", sizeof(T), " bytes, given are ", bytes));
  }
  std::memcpy(field, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t DescSet(cublasLtMatmulDesc_t handle, cublasLtMatmulDescAttributes_t attribute,
                       const void* value, std::size_t bytes) {
  auto& description = *reinterpret_cast<Description*>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      return Set(&description.transpose_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
      return Set(&description.transpose_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      return Set(&description.epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      return Set(&description.bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET:
      return Set(&description.multiprocessors, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
      return Set(&description.bias_type, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
      return Set(&description.aux, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
      return Set(&description.aux_ld, value, bytes);
    default:
      Fatal(StrCat("cublasLt: attribute ", static_cast<int>(attribute), " of a product"));
  }
}

cublasStatus_t LayoutCreate(cublasLtMatrixLayout_t* handle, cudaDataType type, std::uint64_t rows,
                            std::uint64_t columns, std::int64_t ld) {
  if (type != CUDA_R_32F && type != CUDA_R_16BF && type != CUDA_R_16F) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (rows == 0 || columns == 0 || ld < static_cast<std::int64_t>(rows)) {
    return Invalid(StrCat("a layout of [", rows, ", ", columns, "] with leading dimension ", ld));
  }
  *handle = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{type, static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns), ld});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t LayoutDestroy(cublasLtMatrixLayout_t handle) {
  delete reinterpret_cast<Layout*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t PreferenceCreate(cublasLtMatmulPreference_t* handle) {
  *handle = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t PreferenceDestroy(cublasLtMatmulPreference_t handle) {
  delete reinterpret_cast<Preference*>(handle);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t PreferenceSet(cublasLtMatmulPreference_t handle,
                             cublasLtMatmulPreferenceAttributes_t attribute, const void* value,
                             std::size_t bytes) {
  auto& p = *reinterpret_cast<Preference*>(handle);
  switch (attribute) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
      return Set(&p.workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
      return Set(&p.reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
      return Set(&p.alignment[0], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
      return Set(&p.alignment[1], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
      return Set(&p.alignment[2], value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
      return Set(&p.alignment[3], value, bytes);
    default:
      Fatal(StrCat("cublasLt: attribute ", static_cast<int>(attribute), " of a preference"));
  }
}

cublasStatus_t GetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                            cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                            cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                            cublasLtMatmulPreference_t preference, int wanted,
                            cublasLtMatmulHeuristicResult_t results[], int* count) {
  *count = 0;
  {
    const std::lock_guard lock(Setup().mutex);
    ++Setup().counters.heuristics;
  }
  if (wanted <= 0) return Invalid("no results are wanted of the heuristic");
  if (const cublasStatus_t status = CheckProblem(Get(description), Get(a), Get(b), Get(c), Get(d));
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (SetupOptions().no_candidates.contains(
          static_cast<cublasLtEpilogue_t>(Get(description).epilogue))) {
    return CUBLAS_STATUS_SUCCESS;
  }
  const std::array<const Layout*, 4> layouts = {&Get(a), &Get(b), &Get(c), &Get(d)};
  for (int algorithm = 0; algorithm < kAlgorithms && *count < wanted; ++algorithm) {
    if (!Offered(algorithm, Get(description), layouts,
                 *reinterpret_cast<const Preference*>(preference))) {
      continue;
    }
    results[(*count)++] = MakeHeuristicResult(algorithm, Get(description), Get(a), Get(d));
  }
  if (*count > 0 && *count < wanted) {
    results[*count] = cublasLtMatmulHeuristicResult_t{};
    results[(*count)++].state = CUBLAS_STATUS_NOT_SUPPORTED;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t AlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                         cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                         const cublasLtMatmulAlgo_t* algorithm,
                         cublasLtMatmulHeuristicResult_t* result) {
  {
    const std::lock_guard lock(Setup().mutex);
    ++Setup().counters.checks;
  }
  if (const cublasStatus_t status = CheckProblem(Get(description), Get(a), Get(b), Get(c), Get(d));
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  const auto& data = algorithm->data;
  if (data[0] != kMagic || data[1] >= kAlgorithms ||
      data[2] != ProblemKey(Get(description), Get(a), Get(d))) {
    return CUBLAS_STATUS_INVALID_VALUE;  // of another version, or for another problem
  }
  *result = MakeHeuristicResult(static_cast<int>(data[1]), Get(description), Get(a), Get(d));
  return CUBLAS_STATUS_SUCCESS;
}

bool Aligned(const void* pointer, std::size_t to) {
  return reinterpret_cast<std::uintptr_t>(pointer) % to == 0;
}

// The last column may end before the leading dimension does.
Touches Touched(const void* data, const Layout& layout) {
  return {data, static_cast<std::size_t>((layout.columns - 1) * layout.ld + layout.rows) *
                    ElementBytes(layout.type)};
}

Epilogue ToEpilogue(std::uint32_t epilogue) {
  if (epilogue == CUBLASLT_EPILOGUE_BGRADA) return Epilogue::kSumsOfA;
  if (epilogue == CUBLASLT_EPILOGUE_BGRADB) return Epilogue::kSumsOfB;
  if (epilogue == CUBLASLT_EPILOGUE_DGELU) return Epilogue::kGeluGradient;
  if ((epilogue & CUBLASLT_EPILOGUE_GELU) != 0) return Epilogue::kGelu;
  return (epilogue & CUBLASLT_EPILOGUE_RELU) != 0 ? Epilogue::kRelu : Epilogue::kNone;
}

// Whether the vector of BIAS_POINTER is read or written.
bool HasVector(const Product& p) {
  return p.adds_bias || p.epilogue == Epilogue::kSumsOfA || p.epilogue == Epilogue::kSumsOfB;
}

Split SelectSplit(int algorithm) {
  if (algorithm == 2) return Split::kInOrder;
  return algorithm == 3 ? Split::kInAnyOrder : Split::kNone;
}

struct Call {
  Description description;
  Layout a, b, c, d;
  Product product;
  int algorithm = 1;
  std::vector<Touches> touches;
};

cublasStatus_t CheckPointers(const Call& call, const void* workspace, std::size_t bytes) {
  const Product& p = call.product;
  const std::size_t columns = call.algorithm == 0 ? 16 : 1;
  for (const auto& [name, pointer, layout] :
       {std::tuple{"A", p.a.data, &call.a}, std::tuple{"B", p.b.data, &call.b},
        std::tuple{"C", p.beta != 0 ? p.c.data : p.d.data, &call.c},
        std::tuple{"D", static_cast<const void*>(p.d.data), &call.d}}) {
    const std::size_t alignment = std::max(columns, ElementBytes(layout->type));
    if (pointer == nullptr || !Aligned(pointer, alignment)) {
      return Invalid(StrCat(name, " is at ", pointer, ", algorithm ", call.algorithm,
                            " wants a multiple of ", alignment));
    }
  }
  if (p.c.data == p.d.data && call.c.ld != call.d.ld) {
    return Invalid("C and D are the same memory with different layouts");
  }
  if (HasVector(p) && (p.bias == nullptr || !Aligned(p.bias, 16))) {
    return Invalid(StrCat("the bias vector is at ", p.bias, ", wanted is a multiple of 16"));
  }
  if (HasAux(call.description) && (p.aux.data == nullptr || !Aligned(p.aux.data, 16))) {
    return Invalid(StrCat("aux is at ", p.aux.data, ", wanted is a multiple of 16"));
  }
  const std::size_t wanted = WorkspaceBytes(call.algorithm, call.d);
  if (wanted > bytes || (wanted > 0 && !Aligned(workspace, 16))) {
    return Invalid(StrCat("algorithm ", call.algorithm, " wants a workspace of ", wanted,
                          " bytes at a multiple of 16, given are ", bytes, " at ", workspace));
  }
  return CUBLAS_STATUS_SUCCESS;
}

std::vector<Touches> TouchedBy(const Call& call, void* workspace) {
  const Product& p = call.product;
  std::vector<Touches> touches = {Touched(p.a.data, call.a), Touched(p.b.data, call.b),
                                  Touched(p.d.data, call.d)};
  if (p.beta != 0) touches.push_back(Touched(p.c.data, call.c));
  if (HasAux(call.description)) {
    touches.push_back(
        Touched(p.aux.data, {call.d.type, call.d.rows, call.d.columns, call.description.aux_ld}));
  }
  if (HasVector(p)) {
    const std::int64_t values = p.epilogue == Epilogue::kSumsOfB ? p.n : p.m;
    touches.push_back({p.bias, static_cast<std::size_t>(values) * ElementBytes(call.d.type)});
  }
  if (const std::size_t bytes = WorkspaceBytes(call.algorithm, call.d); bytes > 0) {
    touches.push_back({workspace, bytes});
  }
  return touches;
}

cublasStatus_t Start(const Call& call, void* workspace, cudaStream_t stream) {
  int delay_us = 0;
  {
    const std::lock_guard lock(Setup().mutex);
    const CublasLtOptions& options = Setup().options;
    const auto epilogue = static_cast<cublasLtEpilogue_t>(call.description.epilogue);
    if (options.fastest >= 0 && options.fastest != call.algorithm) delay_us = options.delay_us;
    if (options.slow.contains(epilogue)) delay_us += options.delay_us;
    ++Setup().counters.products;
    ++Setup().counters.products_with[epilogue];
    ++Setup().counters.products_of[static_cast<std::size_t>(call.algorithm)];
  }
  const bool limited = call.description.multiprocessors > 0;
  const auto run = [product = call.product, delay_us, limited] {
    Spend(delay_us);
    if (limited) {
      const std::lock_guard lock(Setup().mutex);
      ++Setup().counters.ran_limited;
    }
    Multiply(product);
  };
  const cudaError_t error = Enqueue(stream, "cublasLtMatmul", run, TouchedBy(call, workspace));
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

cublasStatus_t Matmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t description, const void* alpha,
                      const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                      cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                      cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t bytes,
                      cudaStream_t stream) {
  if (handle == nullptr || *reinterpret_cast<std::uint64_t*>(handle) != kMagic) {
    return CUBLAS_STATUS_NOT_INITIALIZED;
  }
  Call call{
      Get(description), Get(a_layout), Get(b_layout), Get(c_layout), Get(d_layout), {}, 1, {}};
  if (const cublasStatus_t status = CheckProblem(call.description, call.a, call.b, call.c, call.d);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  if (algorithm != nullptr) {
    if (algorithm->data[0] != kMagic ||
        algorithm->data[2] != ProblemKey(call.description, call.a, call.d)) {
      return Invalid("this algorithm was not configured for this product");
    }
    call.algorithm = static_cast<int>(algorithm->data[1]);
  }
  const auto epilogue = static_cast<cublasLtEpilogue_t>(call.description.epilogue);
  if (call.algorithm == kRefuses || SetupOptions().refused.contains(epilogue)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  Product& p = call.product;
  const bool ta = call.description.transpose_a != CUBLAS_OP_N;
  const bool tb = call.description.transpose_b != CUBLAS_OP_N;
  p.m = call.d.rows;
  p.n = call.d.columns;
  p.k = ta ? call.a.rows : call.a.columns;
  p.a = {a, ToValueType(call.a.type), call.a.ld, ta};
  p.b = {b, ToValueType(call.b.type), call.b.ld, tb};
  p.c = {c, ToValueType(call.c.type), call.c.ld, false};
  p.d = {d, ToValueType(call.d.type), call.d.ld};
  std::memcpy(&p.alpha, alpha, sizeof(float));
  std::memcpy(&p.beta, beta, sizeof(float));
  p.tf32 = call.description.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
  p.epilogue = ToEpilogue(call.description.epilogue);
  p.adds_bias = (call.description.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0;
  if (HasAux(call.description)) p.aux = {call.description.aux, p.d.type, call.description.aux_ld};
  p.bias = call.description.bias;
  p.split = SelectSplit(call.algorithm);
  p.workspace = static_cast<float*>(workspace);
  const int drops = SetupOptions().drops_tail;
  if ((call.algorithm == drops || drops == kAllAlgorithms) && p.k > 8) p.k -= p.k % 8;
  if (const cublasStatus_t status = CheckPointers(call, workspace, bytes);
      status != CUBLAS_STATUS_SUCCESS) {
    return status;
  }
  return Start(call, workspace, stream);
}

const char* StatusString(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
      return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_ALLOC_FAILED:
      return "CUBLAS_STATUS_ALLOC_FAILED";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_ARCH_MISMATCH:
      return "CUBLAS_STATUS_ARCH_MISMATCH";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
      return "another CUBLAS_STATUS";
  }
}

}  // namespace

const CublasLtApi& StandInCublasLt() {
  static const CublasLtApi api = {
      .Create = &Create,
      .Destroy = &Destroy,
      .GetVersion = &GetVersion,
      .Matmul = &Matmul,
      .MatmulDescCreate = &DescCreate,
      .MatmulDescDestroy = &DescDestroy,
      .MatmulDescSetAttribute = &DescSet,
      .MatrixLayoutCreate = &LayoutCreate,
      .MatrixLayoutDestroy = &LayoutDestroy,
      .MatmulPreferenceCreate = &PreferenceCreate,
      .MatmulPreferenceDestroy = &PreferenceDestroy,
      .MatmulPreferenceSetAttribute = &PreferenceSet,
      .MatmulAlgoGetHeuristic = &GetHeuristic,
      .MatmulAlgoCheck = &AlgoCheck,
      .GetStatusString = &StatusString,
  };
  return api;
}

void SetCublasLt(const CublasLtOptions& options) {
  const std::lock_guard lock(Setup().mutex);
  Setup().options = options;
  Setup().counters = {};
}

CublasLtCounters CountCublasLt() {
  const std::lock_guard lock(Setup().mutex);
  return Setup().counters;
}

}  // namespace gaccd::standin
