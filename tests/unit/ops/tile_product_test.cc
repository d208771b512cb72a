// Products of bf16 by both ways, of any size, against sums in double.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "collectives/base/strings.h"
#include "daemon/ops/product/tile_product_cpu.h"
#include "daemon/tensor/float_types.h"
#include "tests/support/graph_bench.h"

namespace gaccd {
namespace {

struct Operand {
  std::vector<Bf16Pair> pairs;
  std::vector<double> first, second;
};

Operand RandomOperand(std::uint64_t seed, std::int64_t pairs) {
  Operand operand;
  const auto values = RandomValues(seed, static_cast<std::size_t>(2 * pairs));
  for (std::size_t i = 0; i < values.size(); i += 2) {
    operand.pairs.push_back(PackPair<Bf16>(values[i], values[i + 1]));
    operand.first.push_back(ToFloat(ToBf16(values[i])));
    operand.second.push_back(ToFloat(ToBf16(values[i + 1])));
  }
  return operand;
}

struct ProductSizes {
  std::int64_t m, n, k;
};

// a is stored transposed, so that its steps are not those of rows.
void CheckProduct(Bf16TileProduct product, const ProductSizes& size, bool add) {
  SCOPED_TRACE(StrCat(size.m, " x ", size.n, " x ", size.k, add ? ", added" : ""));
  const auto [m, n, k] = size;
  const Operand a = RandomOperand(1, m * k);
  const Operand b = RandomOperand(2, k * n);
  std::vector<float> c(static_cast<std::size_t>(m * n), 3.0F);
  product({a.pairs.data(), 1, m}, b.pairs.data(), n, c.data(), n, m, n, k, add);
  for (std::int64_t r = 0; r < m; ++r) {
    for (std::int64_t j = 0; j < n; ++j) {
      double sum = add ? 3 : 0;
      for (std::int64_t i = 0; i < k; ++i) {
        const auto left = static_cast<std::size_t>(i * m + r);
        const auto right = static_cast<std::size_t>(i * n + j);
        sum += a.first[left] * b.first[right] + a.second[left] * b.second[right];
      }
      EXPECT_NEAR(c[static_cast<std::size_t>(r * n + j)], sum, 1e-5) << r << ", " << j;
    }
  }
}

TEST(Bf16TileProductTest, EqualsSums) {
  for (const CpuBf16 way : {CpuBf16::kEmulated, DetectCpuBf16()}) {
    for (const bool add : {false, true}) {
      for (const ProductSizes& size : {ProductSizes{1, 1, 1},
                                       {12, 16, 24},
                                       {48, 48, 32},
                                       {29, 37, 5},
                                       {6, 7, 3},
                                       {43, 83, 37},
                                       {24, 96, 16},
                                       {16, 48, 8},
                                       {40, 64, 27}}) {
        CheckProduct(SelectBf16TileMath(way).product, size, add);
      }
    }
  }
}

// Any number of rows that remain after blocks of them, and of columns after vectors.
TEST(TileProductTest, EqualsTheSums) {
  constexpr std::int64_t kDepth = 9;
  for (std::int64_t m = 1; m <= 14; ++m) {
    for (const std::int64_t n : {7, 16, 35, 48}) {
      const auto a = RandomValues(1, static_cast<std::size_t>(m * kDepth));
      const auto b = RandomValues(2, static_cast<std::size_t>(kDepth * n));
      std::vector<float> c(static_cast<std::size_t>(m * n), 3.0F);
      TileProduct({a.data(), 1, m}, b.data(), n, c.data(), n, m, n, kDepth, /*add=*/true);
      std::vector<float> exact(c.size(), 3.0F);
      F64TileProduct({a.data(), 1, m}, b.data(), n, exact.data(), n, m, n, kDepth, /*add=*/true);
      std::vector<float> alone(c.size(), 3.0F);
      F64TileProduct({a.data(), 1, m}, b.data(), n, alone.data(), n, m, n, kDepth, /*add=*/false);
      for (std::int64_t at = 0; at < m * n; ++at) {
        double sum = 3;
        for (std::int64_t i = 0; i < kDepth; ++i) {
          sum += double{a[static_cast<std::size_t>(i * m + at / n)]} *
                 double{b[static_cast<std::size_t>(i * n + at % n)]};
        }
        EXPECT_NEAR(c[static_cast<std::size_t>(at)], sum, 1e-5) << m << " x " << n << ": " << at;
        EXPECT_EQ(exact[static_cast<std::size_t>(at)], static_cast<float>(sum)) << m << " x " << n;
        EXPECT_NEAR(alone[static_cast<std::size_t>(at)], sum - 3, 3e-7) << m << " x " << n;
      }
    }
  }
}

// Any number of pairs, and nothing after them.
TEST(Bf16TileMathTest, RoundsToPairs) {
  constexpr std::size_t kMax = 40;
  constexpr Bf16Pair kUntouched = 0xdeadbeef;
  std::vector<float> values = RandomValues(3, 2 * kMax);
  values[0] = std::numeric_limits<float>::quiet_NaN();
  values[1] = -std::numeric_limits<float>::infinity();
  values[2] = std::numeric_limits<float>::max();  // to infinity
  values[3] = 1.0F + 0x1p-8F;                     // ties go to even: to 1,
  values[4] = 1.0F + 0x3p-8F;                     // and to 1 + 2^-6
  const float* const first = values.data();
  const float* const second = values.data() + kMax;
  for (const CpuBf16 way : {CpuBf16::kEmulated, DetectCpuBf16()}) {
    for (std::size_t pairs = 0; pairs <= kMax; ++pairs) {
      std::vector<Bf16Pair> neighbours(pairs + 1, kUntouched);
      std::vector<Bf16Pair> rows(pairs + 1, kUntouched);
      SelectBf16TileMath(way).round_neighbours(first, static_cast<std::int64_t>(pairs),
                                               neighbours.data());
      SelectBf16TileMath(way).round_rows(first, second, static_cast<std::int64_t>(pairs),
                                         rows.data());
      for (std::size_t i = 0; i < pairs; ++i) {
        EXPECT_EQ(neighbours[i], PackPair<Bf16>(values[2 * i], values[2 * i + 1])) << i;
        EXPECT_EQ(rows[i], PackPair<Bf16>(first[i], second[i])) << i;
      }
      EXPECT_EQ(neighbours[pairs], kUntouched);
      EXPECT_EQ(rows[pairs], kUntouched);
    }
  }
}

}  // namespace
}  // namespace gaccd
