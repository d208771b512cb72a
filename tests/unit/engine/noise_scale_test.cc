#include "daemon/engine/noise_scale.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstddef>
#include <random>

namespace gaccd {
namespace {

using ::testing::DoubleNear;

constexpr std::size_t kWidth = 5;
using Vector = std::array<double, kWidth>;

double Square(const Vector& v) {
  double sum = 0;
  for (const double x : v) sum += x * x;
  return sum;
}

// Gradients of single samples with mean (0.5, ...) and variance 4 in each direction.
class NoiseScaleTest : public ::testing::Test {
 protected:
  static constexpr double kSquare = kWidth * 0.25;
  static constexpr double kVariance = kWidth * 4.0;

  struct Measured {
    double norm = 0;
    double squares = 0;  // as EstimateNoise() takes them
    double by_equal_shares = 0;
    std::int64_t ranks = 0;
  };

  Measured Draw() {
    Vector all{};
    Measured found;
    for (const int samples : kShares) {
      Vector own{};
      for (int i = 0; i < samples; ++i) {
        for (double& x : own) x += normal_(random_);
      }
      for (std::size_t d = 0; d < kWidth; ++d) {
        own[d] /= kBatch;
        all[d] += own[d];
      }
      if (samples == 0) continue;
      found.squares += Square(own) / samples;
      found.by_equal_shares += Square(own) / (kBatch / 5.0);
      ++found.ranks;
    }
    found.norm = std::sqrt(Square(all));
    return found;
  }

  static constexpr std::array kShares{13, 12, 1, 0, 5, 40};
  static constexpr std::int64_t kBatch = 71;

 private:
  std::mt19937 random_{7};
  std::normal_distribution<double> normal_{0.5, 2.0};
};

TEST_F(NoiseScaleTest, RaggedRanksGiveTrueValues) {
  constexpr int kDraws = 6000;
  GradientNoise mean;
  double wrong = 0;  // each rank as if it had an equal share
  for (int draw = 0; draw < kDraws; ++draw) {
    const Measured found = Draw();
    const auto noise = EstimateNoise(found.norm, found.squares, found.ranks, kBatch);
    ASSERT_TRUE(noise.has_value());
    mean.variance += noise->variance / kDraws;
    mean.square += noise->square / kDraws;
    wrong +=
        EstimateNoise(found.norm, found.by_equal_shares, found.ranks, kBatch)->variance / kDraws;
  }
  EXPECT_THAT(mean.variance, DoubleNear(kVariance, 0.02 * kVariance));
  EXPECT_THAT(mean.square, DoubleNear(kSquare, 0.02 * kSquare));
  EXPECT_GT(std::abs(wrong - kVariance), 0.2 * kVariance);
}

TEST_F(NoiseScaleTest, OneRankHasNoEstimate) {
  EXPECT_FALSE(EstimateNoise(1, 1, 1, 71).has_value());
  EXPECT_FALSE(EstimateNoise(1, 1, 0, 71).has_value());
}

// A mean of ratios would be dominated by updates whose denominator is small.
TEST_F(NoiseScaleTest, AveragesNumeratorAndDenominatorSeparately) {
  NoiseScale scale;
  EXPECT_FALSE(scale.samples().has_value());
  scale.Add({.variance = 10, .square = -1});
  EXPECT_FALSE(scale.samples().has_value());
  scale.Add({.variance = 20, .square = 3});
  const double weight = 1.9;
  EXPECT_DOUBLE_EQ(scale.average().variance, (9 + 20) / weight);
  EXPECT_DOUBLE_EQ(scale.average().square, (-0.9 + 3) / weight);
  EXPECT_DOUBLE_EQ(scale.samples().value(), 29 / 2.1);
  EXPECT_EQ(scale.measured(), 2);
}

}  // namespace
}  // namespace gaccd
