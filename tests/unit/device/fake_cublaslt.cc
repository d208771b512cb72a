#include "tests/unit/device/fake_cublaslt.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/standin/standin.h"

namespace gaccd {
namespace {

FakeCublasLt fake;

// What every call begins with: the status it must return at once, or success.
cublasStatus_t Enter(const char* function) {
  if (fake.failing != function || --fake.failing_call != 0) return CUBLAS_STATUS_SUCCESS;
  return fake.failure;
}

template <typename T>
cublasStatus_t Make(const char* function, T* out) {
  const cublasStatus_t status = Enter(function);
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  ++fake.live;
  // Never looked into.
  *out = reinterpret_cast<T>(new int);
  return status;
}

template <typename T>
cublasStatus_t Destroy(T object) {
  --fake.live;
  delete reinterpret_cast<int*>(object);
  return CUBLAS_STATUS_SUCCESS;
}

struct FakeLayout {
  bool is_f32 = true;
  std::size_t values = 0;
};

cublasStatus_t MakeLayout(cublasLtMatrixLayout_t* out, cudaDataType type, std::uint64_t rows,
                          std::uint64_t columns, std::int64_t) {
  const cublasStatus_t status = Enter("cublasLtMatrixLayoutCreate");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  ++fake.live;
  *out =
      reinterpret_cast<cublasLtMatrixLayout_t>(new FakeLayout{type == CUDA_R_32F, rows * columns});
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t DestroyLayout(cublasLtMatrixLayout_t layout) {
  --fake.live;
  delete reinterpret_cast<FakeLayout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}

void FillWithOnes(void* d, const FakeLayout& layout) {
  if (layout.is_f32) {
    std::fill_n(static_cast<float*>(d), layout.values, 1.0F);
  } else {
    std::fill_n(static_cast<std::uint16_t*>(d), layout.values, std::uint16_t{0x3F80});  // bf16
  }
}

const FakeAlgorithm* FindAlgorithm(const cublasLtMatmulAlgo_t& algorithm) {
  const auto at =
      std::ranges::find(fake.offered, static_cast<int>(algorithm.data[0]), &FakeAlgorithm::id);
  return at == fake.offered.end() ? nullptr : &*at;
}

cublasStatus_t Heuristic(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         cublasLtMatmulPreference_t, int wanted,
                         cublasLtMatmulHeuristicResult_t results[], int* count) {
  const cublasStatus_t status = Enter("cublasLtMatmulAlgoGetHeuristic");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  ++fake.heuristics;
  *count = 0;
  if (fake.heuristic != CUBLAS_STATUS_SUCCESS) return fake.heuristic;
  for (const FakeAlgorithm& one : fake.offered) {
    if (*count == wanted) break;
    cublasLtMatmulHeuristicResult_t& result = results[(*count)++];
    result = {};
    result.algo.data[0] = static_cast<std::uint64_t>(one.id);
    result.workspaceSize = one.workspace;
    result.state = one.state;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t AlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t, cublasLtMatrixLayout_t,
                         cublasLtMatrixLayout_t, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                         const cublasLtMatmulAlgo_t* algorithm,
                         cublasLtMatmulHeuristicResult_t* result) {
  const FakeAlgorithm* const one = FindAlgorithm(*algorithm);
  if (one == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = one->workspace;
  return one->checked;
}

cublasStatus_t Matmul(cublasLtHandle_t, cublasLtMatmulDesc_t, const void*, const void* a,
                      cublasLtMatrixLayout_t, const void* b, cublasLtMatrixLayout_t, const void*,
                      const void*, cublasLtMatrixLayout_t, void* d, cublasLtMatrixLayout_t layout,
                      const cublasLtMatmulAlgo_t* algorithm, void* workspace, std::size_t,
                      cudaStream_t stream) {
  const cublasStatus_t status = Enter("cublasLtMatmul");
  if (status != CUBLAS_STATUS_SUCCESS) return status;
  const FakeAlgorithm* const one = FindAlgorithm(*algorithm);
  if (one == nullptr) return CUBLAS_STATUS_INVALID_VALUE;
  ++fake.runs[one->id];
  if (one->runs != CUBLAS_STATUS_SUCCESS) return one->runs;
  const int time = one->microseconds;
  const cudaError_t error = standin::Enqueue(
      stream, "fake product",
      [time, a, d, drops_tail = one->drops_tail, layout = *reinterpret_cast<FakeLayout*>(layout)] {
        const auto* words = static_cast<const std::uint16_t*>(a);
        fake.distinct.insert(words, words + fake.looked_at);
        if (!drops_tail) FillWithOnes(d, layout);
        standin::Spend(time);
      },
      {{a, 0}, {b, 0}, {d, 0}, {workspace, 0}});
  return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

template <typename Object, typename Attribute>
cublasStatus_t SetDescription(Object, Attribute, const void*, std::size_t) {
  return Enter("cublasLtMatmulDescSetAttribute");
}
template <typename Object, typename Attribute>
cublasStatus_t SetPreference(Object, Attribute, const void*, std::size_t) {
  return Enter("cublasLtMatmulPreferenceSetAttribute");
}

CublasLtApi MakeApi() {
  CublasLtApi api{};
  api.Create = +[](cublasLtHandle_t* out) { return Make("cublasLtCreate", out); };
  api.Destroy = Destroy<cublasLtHandle_t>;
  api.GetVersion = +[] { return fake.version; };
  api.Matmul = Matmul;
  api.MatmulDescCreate = +[](cublasLtMatmulDesc_t* out, cublasComputeType_t, cudaDataType_t) {
    return Make("cublasLtMatmulDescCreate", out);
  };
  api.MatmulDescDestroy = Destroy<cublasLtMatmulDesc_t>;
  api.MatmulDescSetAttribute = SetDescription;
  api.MatrixLayoutCreate = MakeLayout;
  api.MatrixLayoutDestroy = DestroyLayout;
  api.MatmulPreferenceCreate =
      +[](cublasLtMatmulPreference_t* out) { return Make("cublasLtMatmulPreferenceCreate", out); };
  api.MatmulPreferenceDestroy = Destroy<cublasLtMatmulPreference_t>;
  api.MatmulPreferenceSetAttribute = SetPreference;
  api.MatmulAlgoGetHeuristic = Heuristic;
  api.MatmulAlgoCheck = AlgoCheck;
  api.GetStatusString = +[](cublasStatus_t) { return "the status set in the fake"; };
  return api;
}

}  // namespace

FakeCublasLt& ResetFakeCublasLt() {
  EXPECT_EQ(fake.live, 0) << "something of cuBLASLt is left";
  fake = {};
  return fake;
}

const CublasLtApi& FakeCublasLtApi() {
  static const CublasLtApi kApi = MakeApi();
  return kApi;
}

}  // namespace gaccd
