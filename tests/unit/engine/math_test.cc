// exp, erf and tanh of daemon/ops/math.h against the C library in double.
#include "daemon/ops/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gaccd {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The distance in units of the last place of `expected`, which are never less than those of the
// smallest normal number.
double Units(float found, double expected) {
  const auto rounded = static_cast<float>(expected);
  if (found == rounded) return 0;
  const double size = std::max(std::abs(expected), 0x1p-126);
  const int exponent = std::ilogb(size);
  return std::abs(static_cast<double>(found) - expected) / std::ldexp(1.0, exponent - 23);
}

struct Worst {
  double units = 0;
  float at = 0;
};

Worst WorstOf(float (*formula)(float), double (*reference)(double), double from, double to) {
  constexpr int kPoints = 400'000;
  Worst worst;
  for (int i = 0; i <= kPoints; ++i) {
    const auto x = static_cast<float>(from + (to - from) * i / kPoints);
    const double units = Units(formula(x), reference(static_cast<double>(x)));
    if (units > worst.units) worst = {units, x};
  }
  return worst;
}

TEST(MathTest, ErrorsAreBelowOneAndAHalfUnits) {
  struct {
    const char* name;
    float (*formula)(float);
    double (*reference)(double);
    double from, to;
  } const cases[] = {
      {"exp", Exp, std::exp, -87, 88.7},  {"exp near 0", Exp, std::exp, -1, 1},
      {"erf", Erf, std::erf, -5, 5},      {"erf near 0", Erf, std::erf, -1e-3, 1e-3},
      {"tanh", Tanh, std::tanh, -12, 12}, {"tanh near 0", Tanh, std::tanh, -1e-3, 1e-3},
  };
  for (const auto& c : cases) {
    const Worst worst = WorstOf(c.formula, c.reference, c.from, c.to);
    EXPECT_LT(worst.units, 1.5) << c.name << " at " << worst.at;
    RecordProperty(c.name, std::to_string(worst.units));
  }
}

TEST(MathTest, BeyondTheRange) {
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(89), kInfinity);
  EXPECT_EQ(Exp(1000), kInfinity);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(-110), 0);
  EXPECT_NEAR(Exp(-100) / std::exp(-100.0), 1, 0.05);  // a denormal number has few digits
  EXPECT_EQ(Erf(kInfinity), 1);
  EXPECT_EQ(Erf(-kInfinity), -1);
  EXPECT_EQ(Erf(5), 1);
  EXPECT_EQ(Tanh(kInfinity), 1);
  EXPECT_EQ(Tanh(-kInfinity), -1);
  EXPECT_EQ(Tanh(20), 1);
  for (const float zero : {0.0F, -0.0F}) {
    EXPECT_EQ(std::signbit(Erf(zero)), std::signbit(zero));
    EXPECT_EQ(std::signbit(Tanh(zero)), std::signbit(zero));
  }
  for (const auto formula : {Exp, Erf, Tanh}) EXPECT_TRUE(std::isnan(formula(kNan)));
}

}  // namespace
}  // namespace gaccd
