#include "daemon/tensor/reproducible_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace gaccd {
namespace {

// Values of many magnitudes, the largest near the limit.
template <typename Value>
std::vector<Value> RandomAddends(std::size_t n, int least_exponent, int most_exponent) {
  std::mt19937 random(7);
  std::uniform_real_distribution<double> mantissa(-1, 1);
  std::uniform_int_distribution<int> exponent(least_exponent, most_exponent);
  std::vector<Value> values(n);
  for (Value& value : values) {
    value = static_cast<Value>(std::ldexp(mantissa(random), exponent(random)));
  }
  return values;
}

// Sums of one element.
double Sum(const std::vector<float>& values, std::size_t groups) {
  std::vector<double> total(kFloatBins);
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<double> bins(kFloatBins);
    for (std::size_t i = group; i < values.size(); i += groups) {
      AddToBins({&values[i], 1}, {&bins[0], 1}, {&bins[1], 1});
    }
    for (std::size_t l = 0; l < kFloatBins; ++l) total[l] += bins[l];
  }
  float sum = 0;
  MoveBins(total, std::span(&sum, 1));
  EXPECT_EQ(total, std::vector<double>(kFloatBins));
  return sum;
}

double Sum(const std::vector<double>& values, std::size_t groups) {
  std::vector<double> total(kDoubleBins);
  for (std::size_t group = 0; group < groups; ++group) {
    std::vector<double> bins(kDoubleBins);
    for (std::size_t i = group; i < values.size(); i += groups) AddToBins({&values[i], 1}, bins);
    for (std::size_t l = 0; l < kDoubleBins; ++l) total[l] += bins[l];
  }
  double sum = 0;
  ReadBins(total, std::span(&sum, 1));
  return sum;
}

template <typename Value>
void CheckOrders(int least_exponent, int most_exponent) {
  std::vector<Value> values =
      RandomAddends<Value>(static_cast<std::size_t>(kMaxAddends), least_exponent, most_exponent);
  const double expected = Sum(values, 1);
  // Each addend is rounded to a multiple of the last quantum.
  __extension__ using Wide = __int128;
  Wide exact = 0;
  const int scale = sizeof(Value) == 4 ? 54 : 75;
  for (const Value value : values) {
    exact += static_cast<Wide>(std::nearbyint(std::ldexp(static_cast<long double>(value), scale)));
  }
  const auto rounded = static_cast<Value>(std::ldexp(static_cast<long double>(exact), -scale));
  EXPECT_NEAR(expected, rounded, std::abs(rounded) * std::numeric_limits<Value>::epsilon());
  std::mt19937 random(3);
  Value plain = 0;
  bool plain_differs = false;
  for (const std::size_t groups : {1U, 2U, 7U, 240U}) {
    std::ranges::shuffle(values, random);
    EXPECT_EQ(Sum(values, groups), expected) << groups;
    Value sum = 0;
    for (const Value value : values) sum += value;
    plain_differs = plain_differs || (groups > 1 && sum != plain);
    plain = sum;
  }
  EXPECT_TRUE(plain_differs) << "this test would detect nothing";
}

TEST(ReproducibleSum, HasSameBitsInAnyOrder) {
  CheckOrders<float>(-40, 20);
  CheckOrders<float>(-70, -30);
  CheckOrders<double>(-20, 34);
  CheckOrders<double>(-70, -10);
}

TEST(ReproducibleSum, IsExactAtItsLimits) {
  const float largest = std::nextafter(0x1p20F, 0.0F);
  std::vector<float> values(static_cast<std::size_t>(kMaxAddends), largest);
  EXPECT_EQ(Sum(values, 3), std::nextafter(0x1p36F, 0.0F));
  EXPECT_EQ(Sum(std::vector<float>{0x1p-54F, 0x1p-54F, 1, -1}, 2), 0x1p-53);
  EXPECT_EQ(Sum(std::vector<double>{0x1p-75, 0x1p72, 1, -0x1p72, -1}, 1), 0x1p-75);
}

TEST(ReproducibleSum, IsNotANumberBeyondThem) {
  using Floats = std::numeric_limits<float>;
  for (const float bad : {0x1p20F, -0x1p20F, Floats::max(), Floats::infinity(), -Floats::infinity(),
                          Floats::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(Sum(std::vector<float>{1, bad, 2}, 2))) << bad;
    // The opposite does not hide it.
    EXPECT_TRUE(std::isnan(Sum(std::vector<float>{bad, -bad}, 2))) << bad;
  }
  using Doubles = std::numeric_limits<double>;
  for (const double bad : {0x1p73, -Doubles::max(), Doubles::infinity(), Doubles::quiet_NaN()}) {
    EXPECT_TRUE(std::isnan(Sum(std::vector<double>{1, bad, -bad}, 2))) << bad;
  }
}

}  // namespace
}  // namespace gaccd
