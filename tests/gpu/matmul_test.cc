// Matrix products by the cuBLASLt of this machine against the plain loop. The values are such that
// sums are exact, so all bits must agree, whatever algorithm is chosen.
#include <gtest/gtest.h>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/matmul_choices.h"
#include "tests/gpu/gpu_test.h"
#include "tests/support/status_matchers.h"
#include "tests/unit/device/matmul_support.h"

namespace gaccd {
namespace {

class MatmulTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    const CublasLtApi* api = CublasLtOfTest();
    if (api == nullptr) {
      auto loaded = ValueOrThrow(LoadCublasLt());
      api = loaded;
    }
    context_ = ValueOrThrow(CudaContext::Create(
        {.numerics = {.deterministic = GetParam(), .time_algorithms = !GetParam()},
         .cublaslt = api}));
  }

  // Whether there is an algorithm; if so, its result is checked.
  bool Try(const MatmulCudaSpec& spec, unsigned seed) {
    const auto matmul = MatmulCuda::TryPrepare(*context_, spec);
    EXPECT_TRUE(matmul.ok()) << matmul.status().message();
    if (!matmul.ok() || *matmul == nullptr) return false;
    const MatmulExample example = MakeExample(spec, seed);
    const MatmulOperands operands(example);
    const Status bound = operands.Bind(**matmul);
    const Status ran = (*matmul)->Run();
    EXPECT_TRUE(bound.ok() && ran.ok()) << bound.message() << ran.message();
    const std::vector<double> found = operands.Results(context_->compute());
    // A sum may be rounded to 16 bits before the bias is added, where k is split.
    if (spec.bias && spec.c != DType::kF32 && !GetParam()) {
      ExpectNear(found, example);
    } else {
      EXPECT_EQ(found, Expected(example)) << ToText(spec);
    }
    return true;
  }

  std::unique_ptr<CudaContext> context_;
};

// What a linear layer runs: forward, gradient of the input, gradient of the weight.
TEST_P(MatmulTest, LinearLayerInEverySize) {
  constexpr std::int64_t kLayers[][3] = {{32, 512, 784}, {32, 10, 512}, {13, 512, 784},
                                         {7, 10, 33},    {1, 512, 512}, {256, 64, 48}};
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kFP16}) {
    for (const auto& [samples, out, in] : kLayers) {
      const bool relu = out != 10;
      EXPECT_TRUE(Try({.m = samples,
                       .n = out,
                       .k = in,
                       .transpose_b = true,
                       .ab = dtype,
                       .c = dtype,
                       .bias = true,
                       .relu = relu},
                      1));
      EXPECT_TRUE(Try({.m = samples, .n = in, .k = out, .ab = dtype, .c = dtype}, 2));
      for (const bool accumulate : {false, true}) {
        EXPECT_TRUE(Try({.m = out,
                         .n = in,
                         .k = samples,
                         .transpose_a = true,
                         .ab = dtype,
                         .accumulate = accumulate},
                        3));
      }
    }
  }
}

// All combinations; those that the library lacks are printed.
TEST_P(MatmulTest, EveryCombination) {
  constexpr std::int64_t kSizes[][3] = {{1, 1, 1}, {17, 1, 3}, {3, 2, 65}, {8, 16, 24}};
  int ran = 0;
  int missing = 0;
  for (unsigned bits = 0; bits < 512; ++bits) {
    const auto bit = [&](unsigned i) { return ((bits >> i) & 1U) != 0; };
    MatmulCudaSpec spec{.transpose_a = bit(0),
                        .transpose_b = bit(1),
                        .ab = bit(2) ? DType::kBF16 : DType::kF32,
                        .c = bit(3) ? DType::kBF16 : DType::kF32,
                        .bias = bit(4),
                        .relu = bit(5),
                        .accumulate = bit(6),
                        .column_sums = bit(7),
                        .column_sums_of_b = bit(8)};
    if (spec.ab == DType::kF32 && spec.c == DType::kBF16) continue;
    for (const auto& [m, n, k] : kSizes) {
      spec.m = m;
      spec.n = n;
      spec.k = k;
      if (!Check(spec).ok()) continue;
      const bool offered = Try(spec, bits);
      ++(offered ? ran : missing);
      if (!offered) PrintFact("cuBLASLt offers no " + ToText(spec));
    }
  }
  PrintRow(GetParam() ? "products, deterministic" : "products", !HasFailure(),
           "the bits of the plain loop, for all that are offered",
           StrCat(ran, " offered, ", missing, " not"));
  EXPECT_GT(ran, 40);
}

// Rows of logits are 64 elements' multiples apart, for a vocabulary that is none: what lies between
// is NaN here, and must not be read nor written.
TEST_P(MatmulTest, StridedRows) {
  for (const DType type : {DType::kBF16, DType::kFP16}) {
    const MatmulCudaSpec logits{
        .m = 72, .n = 1001, .k = 64, .transpose_b = true, .ab = type, .c = type, .stride_c = 1024};
    const MatmulCudaSpec dx{.m = 72, .n = 64, .k = 1001, .ab = type, .c = type, .stride_a = 1024};
    const MatmulCudaSpec dw{.m = 1001,
                            .n = 64,
                            .k = 72,
                            .transpose_a = true,
                            .ab = type,
                            .accumulate = true,
                            .stride_a = 1024};
    for (const MatmulCudaSpec& spec : {logits, dx, dw}) EXPECT_TRUE(Try(spec, 5)) << ToText(spec);
  }
  for (const std::string& warning : context_->choices().DrainWarnings()) PrintFact(warning);
  PrintRow(GetParam() ? "rows with a stride, deterministic" : "rows with a stride", !HasFailure(),
           "the bits of the plain loop", "");
}

// The epilogues of GELU at the widths of a transformer; those that the library lacks are printed.
// The library may take an approximate tanh.
TEST_P(MatmulTest, Gelu) {
  int ran = 0;
  for (const DType type : {DType::kBF16, DType::kFP16}) {
    for (unsigned bits = 0; bits < 16; ++bits) {
      const MatmulCudaSpec spec{.m = 40,
                                .n = 96,
                                .k = 64,
                                .transpose_b = (bits & 1U) != 0,
                                .ab = type,
                                .c = type,
                                .bias = (bits & 2U) != 0,
                                .gelu = static_cast<MatmulGelu>(bits / 4)};
      if (spec.gelu == MatmulGelu::kNone || !Check(spec).ok()) continue;
      const auto matmul = ValueOrThrow(MatmulCuda::TryPrepare(*context_, spec));
      if (matmul == nullptr) {
        PrintFact("cuBLASLt offers no " + ToText(spec));
        continue;
      }
      const MatmulExample example = MakeExample(spec, bits);
      const MatmulOperands operands(example);
      ASSERT_TRUE(operands.Bind(*matmul).ok() && matmul->Run().ok()) << ToText(spec);
      ExpectNear(operands.Results(context_->compute()), example, 0x1p-6);
      ++ran;
    }
  }
  for (const std::string& warning : context_->choices().DrainWarnings()) PrintFact(warning);
  PrintRow(GetParam() ? "products with GELU, deterministic" : "products with GELU", !HasFailure(),
           "the plain loop, for all that are offered", StrCat(ran, " offered of 20"));
}

// Deep and thin products, as gradients of weights are: libraries split k, and have left out its
// last terms (K = 8648 and 11528 of cuBLAS 13.1). The last 70 terms are 1 x 1, the others 0.
TEST_P(MatmulTest, IncludesLastTerms) {
  constexpr std::int64_t kOnes = 70;
  const bool is_gpu = CublasLtOfTest() == nullptr;
  // A few: the algorithms of each are timed.
  using Sides = std::vector<std::pair<std::int64_t, std::int64_t>>;
  const Sides all = GetParam() ? Sides{{1, 1}, {1, 64}, {64, 1}, {64, 64}}
                               : Sides{{1, 1}, {1, 8}, {8, 64}, {64, 512}, {512, 1}};
  int products = 0;
  for (const std::int64_t k : {4109, 8648, 11528, 57608, 65537}) {
    for (const auto& [m, n] : all) {
      if (!is_gpu && (k > 8648 || m * n > 64)) continue;  // takes minutes on a CPU
      for (const DType type : {DType::kF32, DType::kBF16, DType::kFP16}) {
        for (const bool transposed : {false, true}) {
          const MatmulCudaSpec spec{.m = m,
                                    .n = n,
                                    .k = k,
                                    .transpose_a = transposed,
                                    .transpose_b = !transposed,
                                    .ab = type};
          const auto matmul = MatmulCuda::Prepare(*context_, spec);
          if (!matmul.ok() && !transposed) {  // no gradient of a weight, and refused by name
            PrintFact(matmul.status().message());
            continue;
          }
          ASSERT_TRUE(matmul.ok()) << matmul.status().message();
          MatmulExample example{.spec = spec};
          const auto fill = [&](std::vector<float>* values, std::int64_t others, bool k_is_rows) {
            values->assign(static_cast<std::size_t>(others * k), 0);
            for (std::int64_t i = 0; i < others; ++i) {
              for (std::int64_t at = k - kOnes; at < k; ++at) {
                (*values)[static_cast<std::size_t>(k_is_rows ? at * others + i : i * k + at)] = 1;
              }
            }
          };
          fill(&example.a, m, transposed);
          fill(&example.b, n, transposed);
          example.c.assign(static_cast<std::size_t>(m * n), 0);
          const MatmulOperands operands(example);
          ASSERT_TRUE(operands.Bind(**matmul).ok() && (*matmul)->Run().ok()) << ToText(spec);
          EXPECT_EQ(operands.Results(context_->compute()),
                    std::vector<double>(static_cast<std::size_t>(m * n), kOnes))
              << ToText(spec);
          ++products;
        }
      }
    }
  }
  const auto refused = context_->choices().DrainWarnings();
  for (const std::string& warning : refused) PrintFact(warning);
  PrintRow(GetParam() ? "deep products, deterministic" : "deep products", !HasFailure(),
           "every term counts",
           StrCat(products, " products, ", refused.size(), " with an algorithm that is refused"));
}

INSTANTIATE_TEST_SUITE_P(Both, MatmulTest, testing::Bool(), [](const auto& setting) {
  return std::string(setting.param ? "deterministic" : "timed");
});

}  // namespace
}  // namespace gaccd
