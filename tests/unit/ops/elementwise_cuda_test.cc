// Elementwise kernels against the formulas: equal to the last bit.
#include <limits>

#include "daemon/autograd/add.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/pointwise/elementwise.h"
#include "tests/support/gpu_bench.h"

namespace gaccd {
namespace {

using ElementwiseCuda = MakerTest;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// NaN equals NaN, whatever its bits.
void ExpectSame(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(expected[i]) && std::isnan(found[i])) continue;
    ASSERT_EQ(found[i], expected[i]) << "element " << i << " of " << found.size();
  }
}

std::vector<float> Map(const std::vector<float>& a, const std::vector<float>& b,
                       float (*formula)(float, float)) {
  std::vector<float> out;
  for (std::size_t i = 0; i < a.size(); ++i) out.push_back(formula(a[i], b[i]));
  return out;
}

TEST_F(ElementwiseCuda, AllSizesTypesAndAlignments) {
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t n : kOddSizes) {
      for (const std::size_t shift : {0, 1}) {
        const auto elements = static_cast<std::int64_t>(n);
        const std::vector<float> a = Stored(dtype, RandomValues(n, n));
        const std::vector<float> b = Stored(dtype, RandomValues(n + 1, n));
        const GpuFloats ga(dtype, a, shift);
        const GpuFloats gb(dtype, b);
        const GpuFloats out(dtype, n);
        const Operand a_of{{{elements}, dtype}, ga.data()};
        const Operand b_of{{{elements}, dtype}, gb.data()};
        EXPECT_OK(RunNode(MakeAddCuda, Add(), {a_of, b_of}, {out.data()}));
        ExpectSame(out.Values(), Stored(dtype, Map(a, b, AddFormula::Apply)));
        EXPECT_OK(RunNode(MakeReluGradientCuda, ReluGradient(), {a_of, b_of}, {out.data()}));
        ExpectSame(out.Values(), Map(a, b, ReluGradientFormula::Apply));
        EXPECT_OK(RunNode(MakeReluCuda, Relu(), {a_of}, {ga.data()}));  // in place
        ExpectSame(ga.Values(), Map(a, b, [](float x, float) { return ReluFormula::Apply(x); }));
      }
    }
  }
}

// The count is no float: a quotient by the nearest one differs in the last place.
TEST_F(ElementwiseCuda, DividesByCountInDouble) {
  constexpr std::int64_t kCount = (std::int64_t{1} << 24) + 1;
  const std::vector<float> x = RandomValues(1, 4097);
  const GpuArray<float> gx(x);
  const GpuArray<float> y(x.size());
  EXPECT_OK(EnqueueDivide(on_, gx.data(), 4097, kCount, y.data()));
  ExpectSame(y.Values(), Map(x, x, [](float value, float) {
               return static_cast<float>(static_cast<double>(value) / static_cast<double>(kCount));
             }));
}

TEST_F(ElementwiseCuda, AccumulateOverwritesOrAdds) {
  for (const DType dtype : kFloatTypes) {
    for (const std::size_t n : kOddSizes) {
      const auto elements = static_cast<std::int64_t>(n);
      const std::vector<float> a = Stored(dtype, RandomValues(n, n));
      const GpuFloats ga(dtype, a);
      const GpuArray<float> gradient(std::vector<float>(n, kNan));
      EXPECT_OK(EnqueueAccumulate(on_, dtype, ga.data(), gradient.data(), elements, false));
      ExpectSame(gradient.Values(), a);
      EXPECT_OK(EnqueueAccumulate(on_, dtype, ga.data(), gradient.data(), elements, true));
      ExpectSame(gradient.Values(), Map(a, a, AddFormula::Apply));
    }
  }
}

TEST_F(ElementwiseCuda, CastsRoundTrip) {
  for (const DType type : {DType::kBF16, DType::kFP16}) {
    for (const std::size_t n : kOddSizes) {
      for (const std::size_t shift : {0, 1}) {
        const auto elements = static_cast<std::int64_t>(n);
        const std::vector<float> values = RandomValues(n, n, 100);
        const GpuArray<float> in(values, shift);
        const GpuFloats half(type, n);
        const GpuArray<float> back(n);
        EXPECT_OK(EnqueueCast(on_, DType::kF32, in.data(), type, half.data(), elements));
        EXPECT_OK(EnqueueCast(on_, type, half.data(), DType::kF32, back.data(), elements));
        ExpectSame(back.Values(), Stored(type, values));
      }
    }
  }
}

TEST_F(ElementwiseCuda, NanAndInfinity) {
  const std::vector<float> x = {kNan, kInfinity, -kInfinity, -0.0F, 1e-40F, 3e38F, -3e38F};
  const auto n = static_cast<std::int64_t>(x.size());
  for (const DType dtype : kFloatTypes) {
    const GpuFloats gx(dtype, x);
    const GpuFloats y(dtype, x.size());
    EXPECT_OK(EnqueueRelu(on_, dtype, gx.data(), y.data(), n));
    ExpectSame(y.Values(), Stored(dtype, {kNan, kInfinity, 0, 0, 1e-40F, 3e38F, 0}));
    const Operand x_of{{{n}, dtype}, gx.data()};
    EXPECT_OK(RunNode(MakeAddCuda, Add(), {x_of, x_of}, {y.data()}));
    ExpectSame(y.Values(), Stored(dtype, Map(x, x, AddFormula::Apply)));
  }
}

TEST(Bf16, RoundsToNearestEven) {
  // Every 16-bit pattern comes back as it is; the middle between two goes to the even one, and what
  // is a little off the middle to the nearer one.
  for (std::uint32_t upper = 0; upper < 0x10000; ++upper) {
    const float value = std::bit_cast<float>(upper << 16);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(ToFloat(ToBf16(value))));
      continue;
    }
    ASSERT_EQ(ToBf16(value).bits, upper);
    if (std::isinf(value)) continue;
    const auto rounded = [&](std::uint32_t lower) {
      return static_cast<std::uint32_t>(ToBf16(std::bit_cast<float>(upper << 16 | lower)).bits);
    };
    ASSERT_EQ(rounded(0x7fff), upper);
    ASSERT_EQ(rounded(0x8000), upper + (upper & 1));
    ASSERT_EQ(rounded(0x8001), upper + 1);
  }
  for (const std::uint32_t nan : {0x7f800001U, 0x7fffffffU, 0xff800001U, 0xffffffffU}) {
    EXPECT_TRUE(std::isnan(ToFloat(ToBf16(std::bit_cast<float>(nan))))) << nan;
  }
  EXPECT_EQ(PackPair<Bf16>(1.0F, -2.0F), 0xc0003f80U);
  EXPECT_EQ(PackPair<Fp16>(1.0F, -2.0F), 0xc0003c00U);
}

// What fp16 counts in at `value`: 2^-10 of its power of two, and no less than 2^-24.
double StepOfFp16(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, value == 0 ? -24 : std::max(exponent - 11, -24));
}

TEST(Fp16, RoundsToNearestEven) {
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {
    const float value = ToFloat(Fp16{static_cast<std::uint16_t>(bits)});
    const double expected = bits < 0x400 ? std::ldexp(bits, -24)
                                         : std::ldexp(bits % 0x400 + 0x400, int(bits >> 10) - 25);
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(ToFloat(Fp16{static_cast<std::uint16_t>(bits | 0x8000)}), -value);
    ASSERT_EQ(ToFp16(value).bits, bits);
    ASSERT_EQ(ToFp16(-value).bits, bits | 0x8000);
    // Halfway to the next one, and a little to both sides.
    const auto middle = static_cast<float>(expected + StepOfFp16(expected) / 2);
    ASSERT_EQ(ToFp16(middle).bits, bits + (bits & 1));
    ASSERT_EQ(ToFp16(std::nextafter(middle, 0.0F)).bits, bits);
    ASSERT_EQ(ToFp16(std::nextafter(middle, 1e9F)).bits, bits + 1);
  }
  EXPECT_EQ(ToFp16(1e30F).bits, 0x7c00);
  EXPECT_EQ(ToFp16(-kInfinity).bits, 0xfc00);
  EXPECT_EQ(ToFloat(Fp16{0x7c00}), kInfinity);
  EXPECT_EQ(ToFloat(Fp16{0xfc00}), -kInfinity);
  for (const std::uint32_t nan : {0x7f800001U, 0x7fffffffU, 0xff800001U}) {
    EXPECT_TRUE(std::isnan(ToFloat(ToFp16(std::bit_cast<float>(nan))))) << nan;
  }
}

}  // namespace
}  // namespace gaccd
