#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "daemon/optim/measure.h"
#include "daemon/optim/update_control.h"

namespace gaccd {
namespace {

TEST(NormTest, EqualsDefinitionForEverySize) {
  std::mt19937 engine(1);
  std::normal_distribution<float> normal;
  for (const std::size_t n : {0, 1, 15, 16, 17, 1023, 1024, 1025, 4097, 100'003}) {
    std::vector<float> values(n);
    long double sum = 0;
    for (float& value : values) {
      value = normal(engine);
      sum += static_cast<long double>(value) * static_cast<long double>(value);
    }
    const double norm = std::sqrt(SumOfSquares(values));
    EXPECT_NEAR(norm, static_cast<double>(std::sqrt(sum)), 1e-12 * (1 + norm)) << n;
    // Blocks that several ranks measure add up to the same bits.
    std::vector<double> sums((n + 1023) / 1024);
    const std::size_t cut = sums.size() / 3;
    BlockSquares(std::span(values).first(cut * 1024), std::span(sums).first(cut));
    BlockSquares(std::span(values).subspan(cut * 1024), std::span(sums).subspan(cut));
    EXPECT_EQ(SumInOrder(sums), SumOfSquares(values)) << n;
  }
}

TEST(NormTest, LargestFiniteValuesAreFinite) {
  const std::vector<float> values(5000, std::numeric_limits<float>::max());
  const double norm = std::sqrt(SumOfSquares(values));
  EXPECT_NEAR(norm / std::numeric_limits<float>::max(), std::sqrt(5000.0), 1e-9);
}

TEST(NormTest, DetectsOneNonFiniteValueAnywhere) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
        -std::numeric_limits<float>::infinity()}) {
    for (const std::size_t place : {0, 3, 16, 4095, 4096, 9000, 9001}) {
      std::vector<float> values(9002, 1);
      values[place] = bad;
      EXPECT_FALSE(std::isfinite(SumOfSquares(values))) << bad << " at " << place;
    }
  }
}

TEST(NormTest, ClipFactorOnlyShortens) {
  EXPECT_EQ(ClipFactor(3, 0), 1);    // 0 = do not clip
  EXPECT_EQ(ClipFactor(0.5, 1), 1);  // short enough
  EXPECT_EQ(ClipFactor(0, 1), 1);
  EXPECT_EQ(ClipFactor(4, 1), 0.25);
}

}  // namespace
}  // namespace gaccd
