#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/matmul.h"
#include "tests/support/graph_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

// Small whole numbers: products and sums of them are exact in f32 in any order.
std::vector<float> WholeNumbers(std::int64_t elements, std::int64_t step) {
  std::vector<float> values(static_cast<std::size_t>(elements));
  for (std::int64_t i = 0; i < elements; ++i) {
    values[static_cast<std::size_t>(i)] = static_cast<float>(i * step % 11 - 5);
  }
  return values;
}

TEST(DnnlStatusTest, OutOfMemoryIsNotInternal) {
  EXPECT_TRUE(DnnlStatus(dnnl_success, "product").ok());
  EXPECT_THAT(DnnlStatus(dnnl_out_of_memory, "product"),
              IsError(ErrorKind::kConfig, "no memory for the workspace of a product"));
  EXPECT_THAT(DnnlStatus(dnnl_invalid_arguments, "product"),
              IsError(ErrorKind::kInternal, "product: dnnl_status_t 2"));
}

// NaN is in C first: a product that overwrites must not read it.
TEST(TransposedProductTest, OverwritesThenAdds) {
  ASSERT_TRUE(CpuContext::Create().ok());  // one thread
  const std::int64_t m = 35;
  const std::int64_t n = 51;
  const std::int64_t k = 263;
  const std::vector<float> a = WholeNumbers(k * m, 7);
  const std::vector<float> b = WholeNumbers(k * n, 3);
  std::vector<float> c(static_cast<std::size_t>(m * n), std::numeric_limits<float>::quiet_NaN());
  for (const int times : {1, 2}) {
    ASSERT_TRUE(TransposedProduct(a.data(), b.data(), m, n, k, times > 1, c.data()).ok());
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        float sum = 0;
        for (std::int64_t l = 0; l < k; ++l) {
          sum += a[static_cast<std::size_t>(l * m + i)] * b[static_cast<std::size_t>(l * n + j)];
        }
        ASSERT_EQ(c[static_cast<std::size_t>(i * n + j)], static_cast<float>(times) * sum)
            << "[" << i << ", " << j << "], product " << times;
      }
    }
  }
}

// Sizes beyond a block of rows, columns and depth, and odd ones. The sum in another order may be
// rounded to the neighbour.
TEST(MatmulTest, F64SumsAreRoundedOnce) {
  const auto context = ValueOrThrow(CpuContext::Create(/*f64_sums=*/true));
  for (const auto& [m, n, k] : {std::array<std::int64_t, 3>{67, 131, 321}, {1, 1, 1}, {3, 5, 0}}) {
    const auto size = [](std::int64_t elements) { return static_cast<std::size_t>(elements); };
    const std::vector<float> a = RandomValues(1, size(m * k));
    const std::vector<float> b = RandomValues(2, size(k * n));
    const std::vector<float> bias = RandomValues(3, size(n));
    const std::vector<float> factors = RandomValues(4, size(m * n));
    for (int options = 0; options < 64; ++options) {
      const bool packed = (options & 16) != 0;
      const MatmulSpec spec{.m = m,
                            .n = n,
                            .k = k,
                            .transpose_a = (options & 1) != 0,
                            .transpose_b = (options & 2) != 0,
                            .bias = (options & 4) != 0,
                            .accumulate = (options & 8) != 0,
                            .multiply = (options & 32) != 0,
                            .packed_b = packed ? b.data() : nullptr};
      if (spec.accumulate && spec.multiply) continue;
      SCOPED_TRACE(StrCat(m, " x ", n, " x ", k, ", options ", options));
      Matmul matmul = ValueOrThrow(Matmul::Prepare(*context, spec));
      std::vector<double> scratch(size(matmul.scratch_bytes()) / sizeof(double));
      std::vector<float> c(size(m * n),
                           spec.accumulate ? 2.0F : std::numeric_limits<float>::quiet_NaN());
      matmul.Bind(a.data(), packed ? nullptr : b.data(), bias.data(), c.data(), scratch.data(),
                  factors.data());
      ASSERT_OK(matmul.Run());
      for (std::int64_t i = 0; i < m * n; ++i) {
        double sum = (spec.bias ? bias[size(i % n)] : 0.0) + (spec.accumulate ? 2.0 : 0.0);
        for (std::int64_t l = 0; l < k; ++l) {
          sum += double{a[size(spec.transpose_a ? l * m + i / n : i / n * k + l)]} *
                 double{b[size(spec.transpose_b ? i % n * k + l : l * n + i % n)]};
        }
        if (spec.multiply) sum = static_cast<double>(static_cast<float>(sum)) * factors[size(i)];
        ASSERT_NEAR(c[size(i)], sum, std::abs(sum) * (spec.multiply ? 1.2e-7 : 6e-8) + 1e-15) << i;
      }
    }
  }
}

}  // namespace
}  // namespace gaccd
