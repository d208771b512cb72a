// Attention over several tiles of rows and keys, against the formulas in double.
#include "daemon/ops/attention/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "collectives/base/strings.h"
#include "daemon/device/cpu/onednn.h"
#include "daemon/ops/attention/attention_tiles_cpu.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/product/linear.h"
#include "daemon/tensor/float_types.h"
#include "tests/support/graph_bench.h"

namespace gaccd {
namespace {

struct Sizes {
  std::int64_t sequences, heads, length, width;
  bool all_rows = false;
};

// One head of one sequence: column `c` of its part, q, k or v, of row i.
struct Head {
  const Sizes& z;
  std::int64_t sequence, head;

  [[nodiscard]] std::size_t Packed(std::int64_t i, std::int64_t part, std::int64_t c) const {
    const std::int64_t row = sequence * z.length + i;
    return static_cast<std::size_t>(((row * 3 + part) * z.heads + head) * z.width + c);
  }
  [[nodiscard]] std::size_t Plain(std::int64_t i, std::int64_t c) const {
    return static_cast<std::size_t>(((sequence * z.length + i) * z.heads + head) * z.width + c);
  }
};

struct Reference {
  std::vector<double> y;
  std::vector<double> dqkv;
};

// dy = factor (y - t).
Reference ComputeReference(const Sizes& z, bool causal, const std::vector<std::int32_t>& lengths,
                           std::span<const float> qkv, std::span<const float> targets,
                           double factor) {
  Reference r{std::vector<double>(targets.size()), std::vector<double>(qkv.size())};
  const double scale = 1 / std::sqrt(static_cast<double>(z.width));
  for (std::int64_t n = 0; n < z.sequences * z.heads; ++n) {
    const Head at{z, n / z.heads, n % z.heads};
    const std::int64_t known =
        lengths.empty() ? z.length : lengths[static_cast<std::size_t>(at.sequence)];
    const auto in = [&](std::int64_t i, std::int64_t part, std::int64_t c) {
      return static_cast<double>(qkv[at.Packed(i, part, c)]);
    };
    for (std::int64_t i = 0; i < z.length; ++i) {
      const std::int64_t seen = causal ? std::min(i + 1, known) : known;
      const std::int64_t keys = i >= known && !z.all_rows ? 0 : seen;
      std::vector<double> p(static_cast<std::size_t>(keys));
      double sum = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        double s = 0;
        for (std::int64_t c = 0; c < z.width; ++c) s += in(i, 0, c) * in(j, 1, c);
        sum += p[static_cast<std::size_t>(j)] = std::exp(scale * s);
      }
      std::vector<double> dy;
      for (std::int64_t c = 0; c < z.width; ++c) {
        double& y = r.y[at.Plain(i, c)];
        for (std::int64_t j = 0; j < keys; ++j) {
          y += p[static_cast<std::size_t>(j)] / sum * in(j, 2, c);
        }
        dy.push_back(factor * (y - static_cast<double>(targets[at.Plain(i, c)])));
      }
      double delta = 0;
      for (std::int64_t c = 0; c < z.width; ++c) {
        delta += dy[static_cast<std::size_t>(c)] * r.y[at.Plain(i, c)];
      }
      for (std::int64_t j = 0; j < keys; ++j) {
        const double weight = p[static_cast<std::size_t>(j)] / sum;
        double dp = 0;
        for (std::int64_t c = 0; c < z.width; ++c) {
          dp += dy[static_cast<std::size_t>(c)] * in(j, 2, c);
          r.dqkv[at.Packed(j, 2, c)] += weight * dy[static_cast<std::size_t>(c)];
        }
        const double ds = scale * weight * (dp - delta);
        for (std::int64_t c = 0; c < z.width; ++c) {
          r.dqkv[at.Packed(i, 0, c)] += ds * in(j, 1, c);
          r.dqkv[at.Packed(j, 1, c)] += ds * in(i, 0, c);
        }
      }
    }
  }
  return r;
}

double RelativeErrorOfRounded(std::span<const float> found, const std::vector<double>& expected) {
  std::vector<float> rounded(expected.begin(), expected.end());
  return RelativeError(found, rounded);
}

// A rounding to bf16 is at most 2^-9 off, sums of several of them somewhat less.
constexpr double kF32Error = 1e-6;
constexpr double kF64Error = 2e-7;
constexpr double kBf16Error = 0x1p-8;

// At most `error` off, gradients twice.
void Check(const Sizes& z, bool causal, const std::vector<std::int32_t>& lengths, double error) {
  const bool bf16 = error == kBf16Error;
  SCOPED_TRACE(StrCat(z.sequences, " sequences of ", z.length, ", ", z.heads, " heads of ", z.width,
                      causal ? ", causal" : "", lengths.empty() ? "" : ", lengths",
                      z.all_rows ? ", all rows" : "", ", at most ", error, " off"));
  GraphBench bench;
  std::vector<ValueId> inputs = {
      bench.Parameter("qkv", {z.sequences * z.length, 3 * z.heads * z.width}, 2)};
  if (!lengths.empty()) inputs.push_back(bench.Ids("lengths", {z.sequences}, lengths));
  const AttentionOptions options{.heads = z.heads,
                                 .length = z.length,
                                 .causal = causal,
                                 .all_rows = z.all_rows,
                                 .round_to_bf16 = bf16};
  const ValueId y = bench.Apply(std::make_shared<Attention>(options), std::move(inputs));
  bench.graph().MarkOutput(y);
  const ValueId t = bench.Input("targets", bench.graph().value(y).spec.shape);
  bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {y, t}),
                        {.f64_sums = error == kF64Error});
  bench.Run();
  const double factor =
      2 * static_cast<double>(GraphBench::kWeight) / static_cast<double>(z.heads * z.width);
  const Reference expected =
      ComputeReference(z, causal, lengths, bench.parameter("qkv"), bench.input(t), factor);
  const auto count = expected.y.size();
  EXPECT_LT(RelativeErrorOfRounded({bench.executor().Output<float>(y), count}, expected.y), error);
  EXPECT_LT(RelativeErrorOfRounded(bench.gradient("qkv"), expected.dqkv), 2 * error);
}

TEST(AttentionTest, EqualsFormulas) {
  for (const double error : {kF32Error, kF64Error, kBf16Error}) {
    for (const bool causal : {false, true}) {
      Check({1, 1, 1, 1}, causal, {}, error);
      Check({2, 3, 100, 20}, causal, {}, error);
      Check({1, 2, kAttentionTile, 16}, causal, {}, error);
      Check({1, 1, 2 * kAttentionTile + 1, 40}, causal, {}, error);
      Check({2, 2, 77, 7}, causal, {}, error);
      for (const bool all_rows : {false, true}) {
        Check({5, 2, 100, 20, all_rows}, causal, {100, 0, 1, kAttentionTile, 77}, error);
        Check({4, 1, 40, 7, all_rows}, causal, {40, 13, 39, 2}, error);
      }
    }
  }
}

// Operands that were rounded before give the same bits, whatever is left over at the end of a row.
TEST(AttentionTest, RoundsOperandsToNearestBf16) {
  for (const std::int64_t width : {1, 7, 8, 33}) {
    const AttentionOptions options{.heads = 2, .length = 66, .round_to_bf16 = true};
    GraphBench plain;
    GraphBench rounded;
    for (GraphBench* bench : {&plain, &rounded}) {
      const ValueId qkv = bench->Parameter("qkv", {132, 3 * 2 * width}, 2);
      const ValueId y = bench->Apply(std::make_shared<Attention>(options), {qkv});
      bench->PrepareTraining(bench->Apply(std::make_shared<MeanSquaredError>(),
                                          {y, bench->Input("t", {132, 2 * width})}));
    }
    for (float& value : rounded.parameter("qkv")) value = ToFloat(ToBf16(value));
    plain.Run();
    rounded.Run();
    EXPECT_EQ(plain.objective(), rounded.objective()) << width;
    EXPECT_TRUE(std::ranges::equal(plain.gradient("qkv"), rounded.gradient("qkv"))) << width;
  }
}

// Gradients for a product in bf16 are those in f32, rounded.
TEST(AttentionTest, GradientsForProductsInBf16AreRounded) {
  if (DetectCpuBf16() == CpuBf16::kNone) GTEST_SKIP() << "this CPU has no products of bf16";
  const AttentionOptions options{.heads = 2, .length = 66, .round_to_bf16 = true};
  constexpr std::int64_t kColumns = 3 * 2 * 16;
  GraphBench plain;
  GraphBench rounded;
  for (GraphBench* bench : {&plain, &rounded}) {
    const ValueId x = bench->Parameter("x", {132, kColumns}, 2);
    const ValueId one = bench->Parameter("one", {kColumns, kColumns});
    const ValueId qkv = bench->Apply(std::make_shared<Linear>(), {x, one});
    const ValueId y = bench->Apply(std::make_shared<Attention>(options), {qkv});
    bench->PrepareTraining(
        bench->Apply(std::make_shared<MeanSquaredError>(), {y, bench->Input("t", {132, 32})}),
        {.fuse = true, .packed = true, .bf16 = bench == &rounded});
    for (std::size_t i = 0; i < kColumns * kColumns; ++i) {
      bench->parameter("one")[i] = i % (kColumns + 1) == 0 ? 1.0F : 0.0F;
    }
    for (float& value : bench->parameter("x")) value = ToFloat(ToBf16(value));
    bench->Run();
  }
  for (std::size_t i = 0; i < 132 * kColumns; ++i) {
    ASSERT_EQ(rounded.gradient("x")[i], ToFloat(ToBf16(plain.gradient("x")[i]))) << i;
  }
}

// q, k and v apart give the same bits as packed ones.
TEST(AttentionTest, PartsEqualPackedRows) {
  const AttentionOptions options{.heads = 3, .length = 66, .causal = true};
  GraphBench packed;
  GraphBench apart;
  const ValueId lengths = packed.Ids("lengths", {2}, std::vector<std::int32_t>{66, 20});
  const ValueId qkv = packed.Parameter("qkv", {132, 3 * 12});
  std::vector<ValueId> inputs;
  for (const char* part : {"q", "k", "v"}) inputs.push_back(apart.Parameter(part, {132, 12}));
  inputs.push_back(apart.Ids("lengths", {2}, std::vector<std::int32_t>{66, 20}));
  const auto prepare = [&](GraphBench& bench, std::vector<ValueId> in) {
    const ValueId y = bench.Apply(std::make_shared<Attention>(options), std::move(in));
    bench.PrepareTraining(
        bench.Apply(std::make_shared<MeanSquaredError>(), {y, bench.Input("t", {132, 12})}));
  };
  prepare(packed, {qkv, lengths});
  prepare(apart, inputs);
  for (std::size_t i = 0; i < 4752; ++i) {
    const char* part[] = {"q", "k", "v"};
    apart.parameter(part[i % 36 / 12])[i / 36 * 12 + i % 12] = packed.parameter("qkv")[i];
  }
  packed.Run();
  apart.Run();
  EXPECT_EQ(packed.objective(), apart.objective());
  for (std::size_t i = 0; i < 4752; ++i) {
    const char* part[] = {"q", "k", "v"};
    ASSERT_EQ(apart.gradient(part[i % 36 / 12])[i / 36 * 12 + i % 12], packed.gradient("qkv")[i]);
  }
}

// Beyond the length nothing is read, so not even a NaN there matters.
TEST(AttentionTest, PaddingIsNotRead) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  GraphBench bench;
  const ValueId qkv = bench.Parameter("qkv", {2 * 76, 3 * 8});
  const ValueId lengths = bench.Ids("lengths", {2}, std::vector<std::int32_t>{10, 66});
  const AttentionOptions options{.heads = 1, .length = 76};
  const ValueId y = bench.Apply(std::make_shared<Attention>(options), {qkv, lengths});
  bench.graph().MarkOutput(y);
  const ValueId t = bench.Input("targets", {152, 8});
  bench.PrepareTraining(bench.Apply(std::make_shared<MeanSquaredError>(), {y, t}));
  for (std::int64_t row = 0; row < 152; ++row) {
    if (row % 76 < (row < 76 ? 10 : 66)) continue;
    for (std::int64_t c = 0; c < 24; ++c) {
      bench.parameter("qkv")[static_cast<std::size_t>(row * 24 + c)] = kNan;
    }
  }
  bench.Run();
  for (std::int64_t row = 0; row < 152; ++row) {
    const bool known = row % 76 < (row < 76 ? 10 : 66);
    for (std::int64_t c = 0; c < 8; ++c) {
      const float value = bench.executor().Output<float>(y)[row * 8 + c];
      EXPECT_TRUE(known ? std::isfinite(value) && value != 0 : value == 0) << row;
    }
    for (std::int64_t c = 0; c < 24; ++c) {
      const float g = bench.gradient("qkv")[static_cast<std::size_t>(row * 24 + c)];
      EXPECT_TRUE(known ? std::isfinite(g) : g == 0) << row;
    }
  }
}

// A NaN that is seen reaches every row that sees it.
TEST(AttentionTest, PropagatesNan) {
  GraphBench bench;
  const ValueId qkv = bench.Parameter("qkv", {76, 3 * 4});
  const ValueId y = bench.Apply(
      std::make_shared<Attention>(AttentionOptions{.heads = 1, .length = 76, .causal = true}),
      {qkv});
  bench.graph().MarkOutput(y);
  bench.Prepare({});
  bench.parameter("qkv")[66 * 12 + 5] = std::numeric_limits<float>::quiet_NaN();  // k of row 66
  bench.Run();
  for (std::int64_t row = 0; row < 76; ++row) {
    const float value = bench.executor().Output<float>(y)[row * 4];
    EXPECT_EQ(std::isnan(value), row >= 66) << row;
  }
}

}  // namespace
}  // namespace gaccd
