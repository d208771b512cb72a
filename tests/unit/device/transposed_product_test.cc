#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "daemon/device/cpu/cpu_context.h"
#include "daemon/device/cpu/matmul.h"
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

}  // namespace
}  // namespace gaccd
