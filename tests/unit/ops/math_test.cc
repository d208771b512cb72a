// exp, tanh and the normal distribution of daemon/ops/pointwise/math.h against the C library in
// double.
#include "daemon/ops/pointwise/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "daemon/ops/pointwise/elementwise.h"

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

Worst FindWorst(float (*formula)(float), double (*reference)(double), double from, double to) {
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
      {"exp", Exp, std::exp, -87, 88.7},
      {"exp near 0", Exp, std::exp, -1, 1},
      {"tanh", Tanh, std::tanh, -12, 12},
      {"tanh near 0", Tanh, std::tanh, -1e-3, 1e-3},
  };
  for (const auto& c : cases) {
    const Worst worst = FindWorst(c.formula, c.reference, c.from, c.to);
    EXPECT_LT(worst.units, 1.5) << c.name << " at " << worst.at;
    RecordProperty(c.name, std::to_string(worst.units));
  }
}

// Small values, far below 0, have three digits, too.
TEST(MathTest, NormalDistribution) {
  for (int i = -80'000; i <= 80'000; ++i) {
    const float x = 1e-4F * static_cast<float>(i);
    const double exact = x;
    const double below = 0.5 * std::erfc(-exact * std::sqrt(0.5));
    const double density = std::exp(-0.5 * exact * exact) / std::sqrt(2 * M_PI);
    const NormalAt found = NormalDistribution(x);
    ASSERT_NEAR(found.below, below, 2.5e-7) << x;
    ASSERT_NEAR(found.below / below, 1, 5e-4) << x;
    ASSERT_NEAR(found.density / density, 1, 2e-6) << x;
  }
  EXPECT_EQ(NormalDistribution(kInfinity).below, 1);
  EXPECT_EQ(NormalDistribution(-kInfinity).below, 0);
  EXPECT_EQ(NormalDistribution(-kInfinity).density, 0);
  EXPECT_TRUE(std::isnan(NormalDistribution(kNan).below));
}

// As far off as the GPU's own exponential and division may be, either way.
template <int kSign>
struct ApproximateMath {
  static float Exp(float x) { return gaccd::Exp(x) * (1 + kSign * 0x1p-20F); }
  static float Divide(float a, float b) { return a / b * (1 - kSign * 0x1p-21F); }
};

// What kernels of 16 bits compute with those is, before it is rounded, off by much less than half a
// unit of fp16, 2^-12.
TEST(MathTest, ApproximationsSufficeFor16Bits) {
  const auto check = [](const char* name, auto exact, auto low, auto high) {
    for (int i = -80'000; i <= 80'000; ++i) {
      const float x = 1e-4F * static_cast<float>(i);
      const float expected = exact(x);
      for (const float found : {low(x), high(x)}) {
        ASSERT_NEAR(found, expected, 0x1p-14F * std::abs(expected) + 0x1p-18F) << name << " " << x;
      }
    }
  };
  using Low = ApproximateMath<-1>;
  using High = ApproximateMath<1>;
  check("gelu", GeluFormula<ExactMath>::Apply, GeluFormula<Low>::Apply, GeluFormula<High>::Apply);
  check("gelu_tanh", GeluTanhFormula<ExactMath>::Apply, GeluTanhFormula<Low>::Apply,
        GeluTanhFormula<High>::Apply);
  check("tanh", TanhFormula<ExactMath>::Apply, TanhFormula<Low>::Apply, TanhFormula<High>::Apply);
  check("silu", SiluFormula<ExactMath>::Apply, SiluFormula<Low>::Apply, SiluFormula<High>::Apply);
  const auto at_one = [](float (*gradient)(float, float)) {
    return [gradient](float x) { return gradient(1, x); };
  };
  check("gelu'", at_one(GeluGradientFormula<ExactMath>::Apply),
        at_one(GeluGradientFormula<Low>::Apply), at_one(GeluGradientFormula<High>::Apply));
  check("gelu_tanh'", at_one(GeluTanhGradientFormula<ExactMath>::Apply),
        at_one(GeluTanhGradientFormula<Low>::Apply), at_one(GeluTanhGradientFormula<High>::Apply));
  check("silu'", at_one(SiluGradientFormula<ExactMath>::Apply),
        at_one(SiluGradientFormula<Low>::Apply), at_one(SiluGradientFormula<High>::Apply));
}

TEST(MathTest, BeyondTheRange) {
  EXPECT_EQ(Exp(0), 1);
  EXPECT_EQ(Exp(89), kInfinity);
  EXPECT_EQ(Exp(1000), kInfinity);
  EXPECT_EQ(Exp(kInfinity), kInfinity);
  EXPECT_EQ(Exp(-kInfinity), 0);
  EXPECT_EQ(Exp(-110), 0);
  EXPECT_NEAR(Exp(-100) / std::exp(-100.0), 1, 0.05);  // a denormal number has few digits
  EXPECT_EQ(Tanh(kInfinity), 1);
  EXPECT_EQ(Tanh(-kInfinity), -1);
  EXPECT_EQ(Tanh(20), 1);
  for (const float zero : {0.0F, -0.0F}) EXPECT_EQ(std::signbit(Tanh(zero)), std::signbit(zero));
  for (const auto formula : {Exp, Tanh}) EXPECT_TRUE(std::isnan(formula(kNan)));
}

}  // namespace
}  // namespace gaccd
