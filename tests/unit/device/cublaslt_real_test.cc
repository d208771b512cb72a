// What can be checked of the real cuBLASLt without a GPU: its descriptors. They refuse attributes
// of a wrong size or value, and tell what they hold. No handle can be made and nothing runs, so
// these two functions are replaced.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

#include "collectives/base/shared_library.h"
#include "collectives/base/strings.h"
#include "daemon/device/cuda/cublaslt_product.h"
#include "daemon/device/cuda/matmul_choices.h"
#include "tests/standin/standin.h"

namespace gaccd {
namespace {

struct Seen {
  cublasLtMatmulDesc_t description = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr, d = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
};
Seen seen;  // by FakeHeuristic(); a C function has no room for it

cublasStatus_t FakeCreate(cublasLtHandle_t* handle) {
  *handle = reinterpret_cast<cublasLtHandle_t>(&seen);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t FakeDestroy(cublasLtHandle_t) { return CUBLAS_STATUS_SUCCESS; }
cublasStatus_t FakeHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t description,
                             cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                             cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                             cublasLtMatmulPreference_t preference, int,
                             cublasLtMatmulHeuristicResult_t[], int* count) {
  seen = {description, a, b, c, d, preference};
  *count = 0;
  return CUBLAS_STATUS_SUCCESS;
}

struct Getters {
  decltype(&::cublasLtMatmulDescGetAttribute) description;
  decltype(&::cublasLtMatrixLayoutGetAttribute) layout;
  decltype(&::cublasLtMatmulPreferenceGetAttribute) preference;
};

class RealCublasLt : public ::testing::Test {
 protected:
  void SetUp() override {
    const Result<const CublasLtApi*> real = LoadCublasLt();
    if (!real.ok()) GTEST_SKIP() << real.status().message();
    const SharedLibrary library =
        SharedLibrary::Open(StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR)).value();
    ASSERT_TRUE(library.Find("cublasLtMatmulDescGetAttribute", &get_.description).ok());
    ASSERT_TRUE(library.Find("cublasLtMatrixLayoutGetAttribute", &get_.layout).ok());
    ASSERT_TRUE(library.Find("cublasLtMatmulPreferenceGetAttribute", &get_.preference).ok());
    api_ = *real.value();
    api_.Create = FakeCreate;
    api_.Destroy = FakeDestroy;
    api_.MatmulAlgoGetHeuristic = FakeHeuristic;
    standin::Reset();
  }
  void TearDown() override { standin::Reset(); }

  std::unique_ptr<CudaContext> MakeContext(CudaNumerics numerics = {}) {
    return CudaContext::Create({.numerics = numerics, .cublaslt = &api_}).value();
  }

  template <typename T>
  T Description(cublasLtMatmulDescAttributes_t attribute) {
    T value{};
    std::size_t written = 0;
    EXPECT_EQ(get_.description(seen.description, attribute, &value, sizeof(value), &written),
              CUBLAS_STATUS_SUCCESS);
    return value;
  }
  template <typename T>
  T Preference(cublasLtMatmulPreferenceAttributes_t attribute) {
    T value{};
    std::size_t written = 0;
    EXPECT_EQ(get_.preference(seen.preference, attribute, &value, sizeof(value), &written),
              CUBLAS_STATUS_SUCCESS);
    return value;
  }
  // type, rows, columns, leading dimension, column-major
  void ExpectLayout(cublasLtMatrixLayout_t layout, std::int64_t type, std::int64_t rows,
                    std::int64_t columns) {
    const auto get = [&](cublasLtMatrixLayoutAttribute_t attribute, auto value) -> std::int64_t {
      std::size_t written = 0;
      EXPECT_EQ(get_.layout(layout, attribute, &value, sizeof(value), &written),
                CUBLAS_STATUS_SUCCESS);
      return static_cast<std::int64_t>(value);
    };
    EXPECT_EQ(get(CUBLASLT_MATRIX_LAYOUT_TYPE, std::uint32_t{}), type);
    EXPECT_EQ(get(CUBLASLT_MATRIX_LAYOUT_ROWS, std::uint64_t{}), rows);
    EXPECT_EQ(get(CUBLASLT_MATRIX_LAYOUT_COLS, std::uint64_t{}), columns);
    EXPECT_EQ(get(CUBLASLT_MATRIX_LAYOUT_LD, std::int64_t{}), rows);
    EXPECT_EQ(get(CUBLASLT_MATRIX_LAYOUT_ORDER, std::int32_t{}), CUBLASLT_ORDER_COL);
  }

  CublasLtApi api_{};
  Getters get_{};
};

// A weight gradient with its bias gradient: dW [512, 784] += dy^T [512, 32] x [32, 784].
TEST_F(RealCublasLt, DescribesWeightGradient) {
  const std::unique_ptr<CudaContext> context = MakeContext();
  const MatmulCudaSpec spec{.m = 512,
                            .n = 784,
                            .k = 32,
                            .transpose_a = true,
                            .ab = DType::kBF16,
                            .accumulate = true,
                            .column_sums = true};
  CublasLtProduct product = CublasLtProduct::Create(*context, spec).value();
  EXPECT_TRUE(product.Candidates().value().empty());
  ExpectLayout(seen.a, CUDA_R_16BF, 784, 32);  // x
  ExpectLayout(seen.b, CUDA_R_16BF, 512, 32);  // dy
  ExpectLayout(seen.c, CUDA_R_32F, 784, 512);
  EXPECT_EQ(seen.c, seen.d);
  EXPECT_EQ(Description<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_N);
  EXPECT_EQ(Description<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_T);
  EXPECT_EQ(Description<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE), CUBLASLT_EPILOGUE_BGRADB);
  EXPECT_EQ(Description<std::int32_t>(CUBLASLT_MATMUL_DESC_POINTER_MODE),
            CUBLASLT_POINTER_MODE_HOST);
  EXPECT_EQ(Description<std::int32_t>(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE), CUBLAS_COMPUTE_32F);
  EXPECT_EQ(Description<std::int32_t>(CUBLASLT_MATMUL_DESC_SCALE_TYPE), CUDA_R_32F);
  // The heuristic learns from it that the sums may lie at odd multiples of 16 bytes.
  EXPECT_EQ(Description<std::uintptr_t>(CUBLASLT_MATMUL_DESC_BIAS_POINTER) % 32, 16U);
  EXPECT_EQ(Preference<std::uint64_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES),
            CudaContext::kWorkspaceBytes);
  EXPECT_EQ(Preference<std::uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES), 32U);
  EXPECT_EQ(Preference<std::uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES), 64U);
}

TEST_F(RealCublasLt, DescribesForwardLayer) {
  const std::unique_ptr<CudaContext> context = MakeContext({.tf32 = true});
  const MatmulCudaSpec spec{
      .m = 32, .n = 512, .k = 784, .transpose_b = true, .bias = true, .relu = true};
  CublasLtProduct product = CublasLtProduct::Create(*context, spec).value();
  EXPECT_TRUE(product.Candidates().value().empty());
  ExpectLayout(seen.a, CUDA_R_32F, 784, 512);  // the weight, [512, 784]
  ExpectLayout(seen.b, CUDA_R_32F, 784, 32);
  ExpectLayout(seen.c, CUDA_R_32F, 512, 32);
  EXPECT_EQ(Description<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSA), CUBLAS_OP_T);
  EXPECT_EQ(Description<std::int32_t>(CUBLASLT_MATMUL_DESC_TRANSB), CUBLAS_OP_N);
  EXPECT_EQ(Description<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE), CUBLASLT_EPILOGUE_RELU_BIAS);
  EXPECT_EQ(Description<std::int32_t>(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE),
            CUBLAS_COMPUTE_32F_FAST_TF32);
}

TEST_F(RealCublasLt, DescribesGelu) {
  const std::unique_ptr<CudaContext> context = MakeContext();
  for (const auto& [gelu, bias, epilogue] :
       {std::tuple{MatmulGelu::kApply, true, CUBLASLT_EPILOGUE_GELU_BIAS},
        std::tuple{MatmulGelu::kApply, false, CUBLASLT_EPILOGUE_GELU},
        std::tuple{MatmulGelu::kKeep, true, CUBLASLT_EPILOGUE_GELU_AUX_BIAS},
        std::tuple{MatmulGelu::kKeep, false, CUBLASLT_EPILOGUE_GELU_AUX},
        std::tuple{MatmulGelu::kGradient, false, CUBLASLT_EPILOGUE_DGELU}}) {
    const MatmulCudaSpec spec{.m = 33,
                              .n = 24,
                              .k = 5,
                              .ab = DType::kBF16,
                              .c = DType::kBF16,
                              .bias = bias,
                              .gelu = gelu};
    CublasLtProduct product = CublasLtProduct::Create(*context, spec).value();
    EXPECT_TRUE(product.Candidates().ok());
    ExpectLayout(seen.d, CUDA_R_16BF, 24, 33);
    EXPECT_EQ(Description<std::uint32_t>(CUBLASLT_MATMUL_DESC_EPILOGUE), epilogue);
    EXPECT_EQ(Description<std::int64_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD),
              spec.has_aux() ? 24 : 0);
    const auto aux = Description<std::uintptr_t>(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
    EXPECT_EQ(aux % 64, spec.has_aux() ? 32U : 0U) << "as little as activations are aligned";
  }
}

TEST_F(RealCublasLt, AllowsReductions) {
  struct Case {
    DType c;
    bool deterministic;
    std::uint32_t allowed;
  };
  constexpr std::uint32_t kCompute = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  constexpr std::uint32_t kOutput = CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
  constexpr std::uint32_t kInPlace = CUBLASLT_REDUCTION_SCHEME_INPLACE;
  for (const Case& one :
       {Case{DType::kF32, false, kCompute | kOutput | kInPlace},
        Case{DType::kF32, true, kCompute | kOutput}, Case{DType::kBF16, false, kCompute},
        Case{DType::kBF16, true, kCompute}}) {
    const std::unique_ptr<CudaContext> context = MakeContext({.deterministic = one.deterministic});
    const MatmulCudaSpec spec{.m = 8, .n = 8, .k = 8, .ab = DType::kBF16, .c = one.c};
    CublasLtProduct product = CublasLtProduct::Create(*context, spec).value();
    EXPECT_TRUE(product.Candidates().ok());
    EXPECT_EQ(Preference<std::uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK), one.allowed);
  }
}

// Every combination that Check() allows is taken by the library's descriptors.
TEST_F(RealCublasLt, AcceptsEverySpec) {
  const std::unique_ptr<CudaContext> context = MakeContext();
  int taken = 0;
  for (unsigned bits = 0; bits < 512; ++bits) {
    const auto bit = [&](unsigned i) { return ((bits >> i) & 1U) != 0; };
    const MatmulCudaSpec spec{.m = 33,
                              .n = 7,
                              .k = 1,
                              .transpose_a = bit(0),
                              .transpose_b = bit(1),
                              .ab = bit(2) ? DType::kBF16 : DType::kF32,
                              .c = bit(3) ? DType::kBF16 : DType::kF32,
                              .bias = bit(4),
                              .relu = bit(5),
                              .accumulate = bit(6),
                              .column_sums = bit(7),
                              .column_sums_of_b = bit(8)};
    if (!Check(spec).ok()) continue;
    Result<CublasLtProduct> product = CublasLtProduct::Create(*context, spec);
    ASSERT_TRUE(product.ok()) << product.status().message();
    ++taken;
  }
  EXPECT_EQ(taken, 88);
}

}  // namespace
}  // namespace gaccd
