#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <random>
#include <tuple>
#include <vector>

#include "tests/standin/cublaslt_standin.h"
#include "tests/standin/host_gemm.h"
#include "tests/standin/test_support.h"

namespace gaccd::standin_test {
namespace {

using standin::CublasLtOptions;
using standin::StandInCublasLt;

const CublasLtApi& Api() { return StandInCublasLt(); }
#define EXPECT_BLAS(call) EXPECT_EQ(call, CUBLAS_STATUS_SUCCESS)

// One product D = op(A) op(B) of column-major matrices, with whatever cuBLASLt needs for it.
struct Case {
  std::int64_t m = 5;
  std::int64_t n = 7;
  std::int64_t k = 9;
  bool ta = false;
  bool tb = false;
  cudaDataType ab = CUDA_R_32F;
  cudaDataType cd = CUDA_R_32F;
  cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  float alpha = 1;
  float beta = 0;
  cublasComputeType_t compute = CUBLAS_COMPUTE_32F;
  std::int64_t gap = 3;  // of the leading dimensions
};

std::vector<float> Random(std::int64_t size, unsigned seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> values(-1, 1);
  std::vector<float> result(static_cast<std::size_t>(size));
  for (float& value : result) value = values(generator);
  return result;
}

// As it lies in device memory.
std::vector<std::byte> Encode(const std::vector<float>& values, cudaDataType type) {
  std::vector<std::byte> bytes(values.size() * (type == CUDA_R_16BF ? 2 : 4));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == CUDA_R_32F) {
      std::memcpy(&bytes[i * 4], &values[i], 4);
    } else {
      const auto bits = std::bit_cast<std::uint32_t>(standin::RoundToBf16(values[i])) >> 16;
      std::memcpy(&bytes[i * 2], &bits, 2);
    }
  }
  return bytes;
}

std::vector<float> Decode(const std::vector<std::byte>& bytes, cudaDataType type) {
  std::vector<float> values(bytes.size() / (type == CUDA_R_16BF ? 2 : 4));
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (type == CUDA_R_32F) {
      std::memcpy(&values[i], &bytes[i * 4], 4);
    } else {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &bytes[i * 2], 2);
      values[i] = std::bit_cast<float>(bits << 16);
    }
  }
  return values;
}

class Problem {
 public:
  explicit Problem(const Case& c)
      : c_(c),
        lda_((c.ta ? c.k : c.m) + c.gap),
        ldb_((c.tb ? c.n : c.k) + c.gap),
        ldd_(c.m + c.gap),
        a_(Random(lda_ * (c.ta ? c.m : c.k), 1)),
        b_(Random(ldb_ * (c.tb ? c.k : c.n), 2)),
        d_(Random(ldd_ * c.n, 3)),
        bias_(Random(std::max(c.m, c.n), 4)),
        device_a_(Encode(a_, c.ab)),
        device_b_(Encode(b_, c.ab)),
        device_d_(Encode(d_, c.cd)),
        device_bias_(Encode(bias_, c.cd)),
        workspace_(std::vector<std::byte>(1 << 20)) {
    EXPECT_BLAS(Api().Create(&handle_));
    EXPECT_BLAS(Api().MatmulDescCreate(&description_, c.compute, CUDA_R_32F));
    Set(CUBLASLT_MATMUL_DESC_TRANSA, std::int32_t{c.ta ? CUBLAS_OP_T : CUBLAS_OP_N});
    Set(CUBLASLT_MATMUL_DESC_TRANSB, std::int32_t{c.tb ? CUBLAS_OP_T : CUBLAS_OP_N});
    Set(CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<std::uint32_t>(c.epilogue));
    Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void*>(device_bias_.data()));
    layouts_[0] = Layout(c.ab, c.ta ? c.k : c.m, c.ta ? c.m : c.k, lda_);
    layouts_[1] = Layout(c.ab, c.tb ? c.n : c.k, c.tb ? c.k : c.n, ldb_);
    layouts_[2] = Layout(c.cd, c.m, c.n, ldd_);
  }
  ~Problem() {
    for (cublasLtMatrixLayout_t layout : layouts_) EXPECT_BLAS(Api().MatrixLayoutDestroy(layout));
    EXPECT_BLAS(Api().MatmulDescDestroy(description_));
    EXPECT_BLAS(Api().Destroy(handle_));
  }
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  template <typename T>
  void Set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    EXPECT_BLAS(Api().MatmulDescSetAttribute(description_, attribute, &value, sizeof(value)));
  }

  std::vector<cublasLtMatmulHeuristicResult_t> Candidates(
      std::uint32_t alignment = 4, std::uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK,
      cublasStatus_t expected = CUBLAS_STATUS_SUCCESS) {
    cublasLtMatmulPreference_t preference = nullptr;
    EXPECT_BLAS(Api().MatmulPreferenceCreate(&preference));
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      EXPECT_BLAS(Api().MatmulPreferenceSetAttribute(preference, attribute, &value, sizeof(value)));
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{1} << 20);
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
    for (const auto attribute :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      set(attribute, alignment);
    }
    std::vector<cublasLtMatmulHeuristicResult_t> results(16);
    int count = 0;
    EXPECT_EQ(
        Api().MatmulAlgoGetHeuristic(handle_, description_, layouts_[0], layouts_[1], layouts_[2],
                                     layouts_[2], preference, 16, results.data(), &count),
        expected);
    EXPECT_BLAS(Api().MatmulPreferenceDestroy(preference));
    results.resize(static_cast<std::size_t>(count));
    std::erase_if(results, [](const auto& r) { return r.state != CUBLAS_STATUS_SUCCESS; });
    return results;
  }

  cublasStatus_t Run(cudaStream_t stream, const cublasLtMatmulAlgo_t* algorithm = nullptr,
                     std::size_t workspace = 1 << 20, std::int64_t shift = 0) {
    return Api().Matmul(handle_, description_, &c_.alpha, device_a_.data() + shift, layouts_[0],
                        device_b_.data(), layouts_[1], &c_.beta, device_d_.data(), layouts_[2],
                        device_d_.data(), layouts_[2], algorithm, workspace_.data(), workspace,
                        stream);
  }
  cublasStatus_t Check(const cublasLtMatmulAlgo_t& algorithm) {
    cublasLtMatmulHeuristicResult_t result{};
    return Api().MatmulAlgoCheck(handle_, description_, layouts_[0], layouts_[1], layouts_[2],
                                 layouts_[2], &algorithm, &result);
  }

  [[nodiscard]] std::vector<float> D() const { return Decode(device_d_.Values(), c_.cd); }
  [[nodiscard]] std::vector<float> Bias() const { return Decode(device_bias_.Values(), c_.cd); }

  // By the definition, in double.
  [[nodiscard]] double Wanted(std::int64_t row, std::int64_t column) const {
    double sum = 0;
    for (std::int64_t k = 0; k < c_.k; ++k) sum += A(row, k) * B(k, column);
    const auto at = static_cast<std::size_t>(column * ldd_ + row);
    double value = c_.alpha * sum;
    if (c_.beta != 0) value += c_.beta * Stored(d_[at], c_.cd);
    if ((c_.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
      value += Stored(bias_[static_cast<std::size_t>(row)], c_.cd);
    const bool relu =
        c_.epilogue == CUBLASLT_EPILOGUE_RELU || c_.epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    return relu ? std::max(value, 0.0) : value;
  }
  [[nodiscard]] double WantedSum(std::int64_t i) const {
    double sum = 0;
    for (std::int64_t k = 0; k < c_.k; ++k) {
      sum += c_.epilogue == CUBLASLT_EPILOGUE_BGRADA ? A(i, k) : B(k, i);
    }
    return sum;
  }

  void ExpectRight() const {
    const std::vector<float> d = D();
    const double tolerance = c_.cd == CUDA_R_16BF ? 0.03 : 2e-5;
    for (std::int64_t column = 0; column < c_.n; ++column) {
      for (std::int64_t row = 0; row < c_.m; ++row) {
        EXPECT_NEAR(d[static_cast<std::size_t>(column * ldd_ + row)], Wanted(row, column),
                    tolerance);
      }
      for (std::int64_t row = c_.m; row < ldd_; ++row) {  // the gap is not touched
        const auto at = static_cast<std::size_t>(column * ldd_ + row);
        EXPECT_EQ(d[at], static_cast<float>(Stored(d_[at], c_.cd)));
      }
    }
    const bool of_a = c_.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    if (!of_a && c_.epilogue != CUBLASLT_EPILOGUE_BGRADB) return;
    const std::vector<float> sums = Bias();
    for (std::int64_t i = 0; i < (of_a ? c_.m : c_.n); ++i) {
      EXPECT_NEAR(sums[static_cast<std::size_t>(i)], WantedSum(i), tolerance);
    }
  }

 private:
  static double Stored(float value, cudaDataType type) {
    return type == CUDA_R_16BF ? standin::RoundToBf16(value) : value;
  }
  [[nodiscard]] double A(std::int64_t row, std::int64_t k) const {
    return Stored(a_[static_cast<std::size_t>(c_.ta ? row * lda_ + k : k * lda_ + row)], c_.ab);
  }
  [[nodiscard]] double B(std::int64_t k, std::int64_t column) const {
    return Stored(b_[static_cast<std::size_t>(c_.tb ? k * ldb_ + column : column * ldb_ + k)],
                  c_.ab);
  }
  static cublasLtMatrixLayout_t Layout(cudaDataType type, std::int64_t rows, std::int64_t columns,
                                       std::int64_t ld) {
    cublasLtMatrixLayout_t layout = nullptr;
    EXPECT_BLAS(Api().MatrixLayoutCreate(&layout, type, static_cast<std::uint64_t>(rows),
                                         static_cast<std::uint64_t>(columns), ld));
    return layout;
  }

  Case c_;
  std::int64_t lda_, ldb_, ldd_;
  std::vector<float> a_, b_, d_, bias_;
  OnDevice<std::byte> device_a_, device_b_, device_d_, device_bias_, workspace_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t description_ = nullptr;
  cublasLtMatrixLayout_t layouts_[3] = {};
};

class CublasLtTest : public StandInTest {
 protected:
  CublasLtTest() { standin::SetCublasLt(); }
};

using Shape = std::tuple<std::int64_t, std::int64_t, std::int64_t>;
using Kind = std::tuple<bool, bool, cublasLtEpilogue_t, Shape>;
class CublasLtProductTest : public CublasLtTest, public testing::WithParamInterface<Kind> {};

TEST_P(CublasLtProductTest, EqualsDefinition) {
  const auto& [ta, tb, epilogue, shape] = GetParam();
  const auto& [m, n, k] = shape;
  const Stream stream;
  for (const auto& [ab, cd] :
       {std::pair{CUDA_R_32F, CUDA_R_32F}, std::pair{CUDA_R_16BF, CUDA_R_16BF},
        std::pair{CUDA_R_16BF, CUDA_R_32F}}) {
    for (const float beta : {0.0F, 1.0F, -0.5F}) {
      Case c{.m = m, .n = n, .k = k, .ta = ta, .tb = tb, .ab = ab, .cd = cd, .epilogue = epilogue};
      c.alpha = beta == 0 ? 1.0F : 1.5F;
      c.beta = beta;
      std::size_t algorithms = 0;
      do {  // each algorithm on new operands
        Problem problem(c);
        const auto candidates = problem.Candidates();
        ASSERT_GE(candidates.size(), 2U);
        ASSERT_EQ(problem.Run(stream, &candidates[algorithms].algo), CUBLAS_STATUS_SUCCESS);
        EXPECT_CUDA(cudaStreamSynchronize(stream));
        problem.ExpectRight();
        if (++algorithms == candidates.size()) break;
      } while (true);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CublasLtProductTest,
    testing::Combine(testing::Bool(), testing::Bool(),
                     testing::Values(CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_RELU,
                                     CUBLASLT_EPILOGUE_BIAS, CUBLASLT_EPILOGUE_RELU_BIAS,
                                     CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB),
                     testing::Values(Shape{1, 1, 1}, Shape{5, 7, 9}, Shape{33, 18, 20})));

TEST_F(CublasLtTest, BetaZeroDoesNotReadC) {
  const Stream stream;
  Problem problem({});
  const std::vector<float> nan(8 * 7, NAN);
  const OnDevice<float> d(nan);
  ASSERT_EQ(problem.Run(stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  for (const float value : problem.D()) EXPECT_FALSE(std::isnan(value));
}

TEST_F(CublasLtTest, Tf32RoundsItsInputs) {
  EXPECT_EQ(standin::RoundToTf32(1.0F + 0x1p-11F), 1.0F);                // tie to even
  EXPECT_EQ(standin::RoundToTf32(1.0F + 0x1.8p-10F), 1.0F + 0x1p-9F);    // tie to even
  EXPECT_EQ(standin::RoundToTf32(1.0F + 0x1.01p-11F), 1.0F + 0x1p-10F);  // up
  const Stream stream;
  Problem exact({.m = 1, .n = 1, .k = 1});
  Problem rounded({.m = 1, .n = 1, .k = 1, .compute = CUBLAS_COMPUTE_32F_FAST_TF32});
  ASSERT_EQ(exact.Run(stream), CUBLAS_STATUS_SUCCESS);
  ASSERT_EQ(rounded.Run(stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  EXPECT_NE(exact.D()[0], rounded.D()[0]);
  EXPECT_NEAR(exact.D()[0], rounded.D()[0], 1e-3);
}

TEST_F(CublasLtTest, HeuristicRespectsPreference) {
  Problem problem({.m = 8, .n = 8, .k = 8, .gap = 0});
  EXPECT_EQ(problem.Candidates(16).size(), 4U);
  EXPECT_EQ(problem.Candidates(4).size(), 3U) << "0 wants 16 bytes";
  EXPECT_EQ(problem.Candidates(16, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE).size(), 3U);
  EXPECT_EQ(problem.Candidates(16, CUBLASLT_REDUCTION_SCHEME_NONE).size(), 2U);
  standin::SetCublasLt({.no_candidates = {CUBLASLT_EPILOGUE_DEFAULT}});
  EXPECT_EQ(problem.Candidates(16).size(), 0U);
  standin::SetCublasLt({.not_supported = {CUBLASLT_EPILOGUE_DEFAULT}});
  EXPECT_EQ(
      problem.Candidates(16, CUBLASLT_REDUCTION_SCHEME_MASK, CUBLAS_STATUS_NOT_SUPPORTED).size(),
      0U);
  standin::SetCublasLt({.one_refuses = true});
  const auto candidates = problem.Candidates(16);
  ASSERT_EQ(candidates.size(), 5U);
  EXPECT_EQ(problem.Check(candidates[4].algo), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(problem.Run(nullptr, &candidates[4].algo), CUBLAS_STATUS_NOT_SUPPORTED);
  EXPECT_EQ(standin::CountCublasLt().heuristics, 1);
  EXPECT_EQ(standin::CountCublasLt().products, 0);
}

TEST_F(CublasLtTest, RefusesAlgorithmOfAnotherProblem) {
  Problem f32({});
  Problem bf16({.ab = CUDA_R_16BF});
  const auto candidates = f32.Candidates();
  EXPECT_EQ(f32.Check(candidates[0].algo), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(bf16.Check(candidates[0].algo), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_EQ(bf16.Run(nullptr, &candidates[0].algo), CUBLAS_STATUS_INVALID_VALUE);
}

// aux is [m, n], as D, with rows between: column * ld + row.
TEST_F(CublasLtTest, GeluKeepsInputForItsGradient) {
  const Stream stream;
  constexpr std::int64_t kLd = 16;
  const auto gelu = [](double x) {
    return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  };
  for (const bool gradient : {false, true}) {
    Problem problem(
        {.m = 9, .epilogue = gradient ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_GELU_AUX_BIAS});
    const std::vector<float> before = Random(kLd * 7, 9);
    const OnDevice<float> aux(before);
    problem.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, kLd);
    problem.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, static_cast<void*>(aux.data()));
    ASSERT_EQ(problem.Run(stream), CUBLAS_STATUS_SUCCESS);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    const std::vector<float> after = aux.Values();
    const std::vector<float> d = problem.D();
    for (std::int64_t column = 0; column < 7; ++column) {
      for (std::int64_t row = 0; row < kLd; ++row) {
        const auto at = static_cast<std::size_t>(column * kLd + row);
        const double x = double{before[at]};
        if (gradient || row >= 9) {
          EXPECT_EQ(after[at], before[at]);
        }
        if (row >= 9) continue;
        const double sum = problem.Wanted(row, column);
        const float found = d[static_cast<std::size_t>(column * 12 + row)];
        if (gradient) {
          EXPECT_NEAR(found, sum * (gelu(x + 1e-4) - gelu(x - 1e-4)) / 2e-4, 1e-4);
        } else {
          EXPECT_NEAR(after[at], sum, 2e-5);
          EXPECT_NEAR(found, gelu(sum), 2e-5);
        }
      }
    }
  }
}

TEST_F(CublasLtTest, RefusesABadAux) {
  Problem problem({.m = 9, .epilogue = CUBLASLT_EPILOGUE_DGELU});
  const OnDevice<float> aux(std::vector<float>(16 * 7 + 4));
  const auto run = [&](std::int64_t ld, void* pointer) {
    problem.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, ld);
    problem.Set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, pointer);
    return problem.Run(nullptr);
  };
  EXPECT_EQ(run(16, aux.data()), CUBLAS_STATUS_SUCCESS);
  EXPECT_EQ(run(8, aux.data()), CUBLAS_STATUS_INVALID_VALUE) << "fewer than rows";
  EXPECT_EQ(run(12, aux.data()), CUBLAS_STATUS_INVALID_VALUE) << "no multiple of 8";
  EXPECT_EQ(run(16, aux.data() + 1), CUBLAS_STATUS_INVALID_VALUE) << "at a multiple of 4";
  EXPECT_EQ(run(16, nullptr), CUBLAS_STATUS_INVALID_VALUE);
  EXPECT_CUDA(cudaDeviceSynchronize());
}

TEST_F(CublasLtTest, RefusesLikeCublasLt) {
  Problem problem({.m = 8, .n = 8, .k = 8, .epilogue = CUBLASLT_EPILOGUE_BIAS, .gap = 0});
  const auto candidates = problem.Candidates(16);
  ASSERT_EQ(candidates.size(), 3U);
  EXPECT_EQ(problem.Run(nullptr, &candidates[0].algo, 0, 4), CUBLAS_STATUS_INVALID_VALUE)
      << "A is at a multiple of 4";
  EXPECT_EQ(problem.Run(nullptr, &candidates[2].algo, 0), CUBLAS_STATUS_INVALID_VALUE)
      << "no workspace";
  const OnDevice<float> bias(std::vector<float>(16));
  problem.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data() + 1);
  EXPECT_EQ(problem.Run(nullptr), CUBLAS_STATUS_INVALID_VALUE) << "a bias at a multiple of 4";
  problem.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<float*>(nullptr));
  EXPECT_EQ(problem.Run(nullptr), CUBLAS_STATUS_INVALID_VALUE) << "no bias";
  cublasLtMatrixLayout_t layout = nullptr;
  EXPECT_EQ(Api().MatrixLayoutCreate(&layout, CUDA_R_32F, 8, 4, 7), CUBLAS_STATUS_INVALID_VALUE);
  Problem types({.ab = CUDA_R_32F, .cd = CUDA_R_16BF});
  EXPECT_EQ(types.Run(nullptr), CUBLAS_STATUS_NOT_SUPPORTED);
}

TEST_F(CublasLtTest, AbortsIfMemoryIsTooSmallForLayout) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Problem problem({.epilogue = CUBLASLT_EPILOGUE_BIAS});
  const OnDevice<float> bias(std::vector<float>(4));  // 5 are read
  problem.Set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias.data());
  EXPECT_DEATH((void)problem.Run(nullptr),
               "20 bytes from offset 0 of device memory .* of 16 bytes");
}

TEST_F(CublasLtTest, SplitInAnyOrderIsNondeterministic) {
  const Stream stream;
  const Case c{.m = 40, .n = 40, .k = 64, .beta = 1, .gap = 0};
  std::vector<std::vector<float>> results;
  for (const std::size_t algorithm : {2U, 2U, 3U, 3U}) {
    Problem problem(c);
    const auto candidates = problem.Candidates(16);
    ASSERT_EQ(candidates.size(), 4U);
    ASSERT_EQ(problem.Run(stream, &candidates[algorithm].algo), CUBLAS_STATUS_SUCCESS);
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    results.push_back(problem.D());
  }
  EXPECT_EQ(results[0], results[1]);
  EXPECT_NE(results[2], results[3]);
}

// By the clock of the stand-in: the machine's own counts whatever else runs on it.
TEST_F(CublasLtTest, FastestAlgorithmIsConfigurable) {
  const standin::VirtualClock clock;
  standin::SetCublasLt({.fastest = 1, .delay_us = 30000});
  const Stream stream;
  const Event begin(cudaEventDefault);
  const Event end(cudaEventDefault);
  Problem problem({.m = 8, .n = 8, .k = 8, .gap = 0});
  const auto candidates = problem.Candidates(16);
  std::vector<float> milliseconds;
  for (const auto& candidate : candidates) {
    EXPECT_CUDA(cudaEventRecord(begin, stream));
    ASSERT_EQ(problem.Run(stream, &candidate.algo), CUBLAS_STATUS_SUCCESS);
    EXPECT_CUDA(cudaEventRecord(end, stream));
    EXPECT_CUDA(cudaStreamSynchronize(stream));
    EXPECT_CUDA(cudaEventElapsedTime(&milliseconds.emplace_back(), begin, end));
  }
  EXPECT_EQ(std::ranges::min_element(milliseconds) - milliseconds.begin(), 1);
  EXPECT_EQ(standin::CountCublasLt().products_of, (std::vector<std::int64_t>{1, 1, 1, 1, 0}));
}

TEST_F(CublasLtTest, FastEnoughForTraining) {
  const Stream stream;
  Problem problem({.m = 512, .n = 32, .k = 784, .gap = 0});
  ASSERT_EQ(problem.Run(stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 10; ++i) ASSERT_EQ(problem.Run(stream), CUBLAS_STATUS_SUCCESS);
  EXPECT_CUDA(cudaStreamSynchronize(stream));
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
  RecordProperty("milliseconds_of_512x32x784", std::to_string(taken.count() * 100));
}

}  // namespace
}  // namespace gaccd::standin_test
