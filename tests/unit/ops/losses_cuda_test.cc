// Losses, softmax, counts and column sums on the GPU against references in double.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/ops/loss/label_ranks.h"
#include "daemon/ops/loss/mean_squared_error.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "tests/support/gpu_bench.h"

namespace gaccd {
namespace {

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr float kWeight = GraphBench::kWeight;

struct Example {
  DType dtype = DType::kF32;
  Matrix size;
  std::vector<float> logits;  // as stored
  std::vector<std::int32_t> labels;

  [[nodiscard]] std::span<const float> row(std::int64_t m) const {
    return std::span(logits).subspan(static_cast<std::size_t>(m * size.columns),
                                     static_cast<std::size_t>(size.columns));
  }
};

// The labels of the first rows are the first and the last class.
Example MakeExample(DType dtype, Matrix size, double limit) {
  Example example{dtype, size, {}, {}};
  const auto elements = static_cast<std::size_t>(size.rows * size.columns);
  example.logits = Stored(dtype, RandomValues(elements, elements, limit));
  for (std::int64_t m = 0; m < size.rows; ++m) {
    const std::int64_t label = m == 0 ? 0 : m == 1 ? size.columns - 1 : m * 7919 % size.columns;
    example.labels.push_back(static_cast<std::int32_t>(label));
  }
  return example;
}

struct Reference {
  double loss = 0;
  std::vector<double> gradient;  // times kWeight
};

Reference ComputeReference(const Example& example) {
  Reference reference;
  for (std::int64_t m = 0; m < example.size.rows; ++m) {
    const auto z = example.row(m);
    const auto label = static_cast<std::size_t>(example.labels[static_cast<std::size_t>(m)]);
    const double top = static_cast<double>(*std::ranges::max_element(z));
    double others = 0;
    for (std::size_t c = 0; c < z.size(); ++c) {
      if (c != label) others += std::exp(static_cast<double>(z[c]) - top);
    }
    const double at_label = std::exp(static_cast<double>(z[label]) - top);
    reference.loss += top == static_cast<double>(z[label])
                          ? std::log1p(others)
                          : std::log(others + at_label) - (static_cast<double>(z[label]) - top);
    for (std::size_t c = 0; c < z.size(); ++c) {
      const double p = std::exp(static_cast<double>(z[c]) - top) / (others + at_label);
      reference.gradient.push_back((c == label ? -others / (others + at_label) : p) *
                                   static_cast<double>(kWeight));
    }
  }
  return reference;
}

// Each value to `relative` of itself, or to what its type can tell.
void ExpectNear(DType dtype, const std::vector<float>& found, const std::vector<double>& expected,
                double relative, const std::string& what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(found[i]), expected[i],
                relative * std::abs(expected[i]) + 1.001 * MinRoundingError(dtype))
        << what << " element " << i;
  }
}

// exp of a float argument, and sums of up to 50304 of them, partly in float.
double Allowed(DType dtype) { return 4e-6 + 2 * RoundingError(dtype); }

using Integers = std::vector<std::int32_t>;

class LossesCuda : public MakerTest {
 protected:
  // The ranks, then the best classes.
  std::pair<Integers, Integers> ComputeLabelRanks(const GpuFloats& z, const ValueSpec& spec,
                                                  const Integers& labels) {
    const GpuArray<std::int32_t> on_gpu(labels);
    const GpuArray<std::int32_t> ranks(labels.size());
    const GpuArray<std::int32_t> best(labels.size());
    EXPECT_OK(RunNode(MakeLabelRanksCuda, LabelRanks(),
                      {{spec, z.data()}, {{{std::ssize(labels)}, DType::kI32}, on_gpu.data()}},
                      {ranks.data(), best.data()}));
    return {ranks.Values(), best.Values()};
  }
  std::pair<Integers, Integers> ComputeLabelRanks(DType dtype, const std::vector<float>& logits,
                                                  const Integers& labels) {
    const std::int64_t rows = std::ssize(labels);
    return ComputeLabelRanks({dtype, logits}, {{rows, std::ssize(logits) / rows}, dtype}, labels);
  }
};

struct TokenLosses {
  double loss = 0, weight = 0;
  std::vector<float> gradient;  // times kWeight
};

class CrossEntropyCuda : public LossesCuda {
 protected:
  // `to` null: only the loss.
  TokenLosses Run(const Example& example, const std::vector<float>& weights, float smoothing,
                  const GpuFloats& logits, const GpuFloats* to) {
    const GpuArray<std::int32_t> labels(example.labels);
    const GpuArray<float> of_rows(weights.empty() ? std::vector<float>(1) : weights);
    const GpuArray<float> seed(std::vector<float>{kWeight});
    const GpuArray<double> sums(std::vector<double>{-1, -1});
    EXPECT_OK(EnqueueTokenCrossEntropy(on_, example.dtype, logits.data(), labels.data(),
                                       weights.empty() ? nullptr : of_rows.data(),
                                       {-100, smoothing}, to != nullptr ? seed.data() : nullptr,
                                       example.size, sums.data(), sums.data() + 1,
                                       to != nullptr ? to->data() : nullptr));
    const std::vector<double> found = sums.Values();
    return {found[0], found[1], {}};
  }

  // One label a row: only the loss; the gradient elsewhere and in place.
  void Check(const Example& example, std::size_t shift) {
    const std::string what = StrCat(Name(example.dtype), " ", example.size.rows, " x ",
                                    example.size.columns, " shift ", shift);
    const Reference reference = ComputeReference(example);
    const GpuFloats logits(example.dtype, example.logits, shift);
    const GpuFloats out(example.dtype, example.logits.size());
    const TokenLosses loss = Run(example, {}, 0, logits, nullptr);
    EXPECT_NEAR(loss.loss, reference.loss, 2e-6 * reference.loss) << what;
    EXPECT_EQ(loss.weight, static_cast<double>(example.size.rows)) << what;
    EXPECT_EQ(Run(example, {}, 0, logits, &out).loss, loss.loss) << what;
    ExpectNear(example.dtype, out.Values(), reference.gradient, Allowed(example.dtype), what);
    EXPECT_EQ(Run(example, {}, 0, logits, &logits).loss, loss.loss) << what;
    EXPECT_EQ(logits.Values(), out.Values()) << what;
  }

  double ComputeLoss(const std::vector<float>& row, std::int32_t label,
                     std::vector<float>* gradient) {
    const Example example{DType::kF32, {1, std::ssize(row)}, row, {label}};
    const GpuFloats logits(DType::kF32, row);
    const double loss = Run(example, {}, 0, logits, &logits).loss;
    if (gradient != nullptr) *gradient = logits.Values();
    return loss;
  }
};

TEST_F(CrossEntropyCuda, NarrowRows) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t columns : {1, 2, 10, 31, 32, 33, 127, 128, 129, 1000, 1024}) {
      for (const std::int64_t rows : {1, 3, 37}) Check(MakeExample(dtype, {rows, columns}, 6), 0);
    }
  }
}

TEST_F(CrossEntropyCuda, WideRows) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t columns : {1025, 4096, 4097, 20000}) {
      Check(MakeExample(dtype, {5, columns}, 6), 0);
    }
    Check(MakeExample(dtype, {5, 4096}, 6), 1);
    Check(MakeExample(dtype, {3, 50304}, 6), 0);
  }
}

TEST_F(CrossEntropyCuda, ManyRowsForFewBlocks) {
  for (const DType dtype : kFloatTypes) Check(MakeExample(dtype, {500, 10}, 6), 0);
}

// The loss is the tiny rest of a number near 1: it must have all its digits.
TEST_F(CrossEntropyCuda, ConfidentRows) {
  for (const std::size_t columns : {10, 2000}) {
    std::vector<float> row(columns, -20.0F);
    row[3] = 0;
    std::vector<float> gradient;
    const double rest = static_cast<double>(columns - 1) * std::exp(-20.0);
    EXPECT_NEAR(ComputeLoss(row, 3, &gradient) / std::log1p(rest), 1, 1e-6);
    EXPECT_NEAR(static_cast<double>(gradient[3] / kWeight) / (-rest / (1 + rest)), 1, 1e-6);
  }
}

TEST_F(CrossEntropyCuda, ExtremeLogits) {
  for (const std::size_t columns : {10, 2000}) {
    for (const float scale : {1e6F, 1e20F, 1.5e38F}) {
      std::vector<float> row(columns);
      for (std::size_t c = 0; c < columns; ++c) {
        row[c] = scale * (static_cast<float>(c) / static_cast<float>(columns) * 2 - 1);
      }
      std::vector<float> gradient;
      const double gap = static_cast<double>(row.back()) - static_cast<double>(row[0]);
      EXPECT_NEAR(ComputeLoss(row, 0, &gradient) / gap, 1, 1e-6) << scale;
      EXPECT_EQ(gradient[0], -kWeight);
      EXPECT_EQ(gradient.back(), kWeight);
      EXPECT_EQ(ComputeLoss(row, static_cast<std::int32_t>(columns) - 1, nullptr), 0) << scale;
    }
    // Classes that are masked out count nothing, in any place.
    std::vector<float> masked(columns, -kFloatInfinity);
    masked[2] = masked[5] = 1;
    std::vector<float> gradient;
    EXPECT_NEAR(ComputeLoss(masked, 5, &gradient), std::log(2.0), 1e-7);
    EXPECT_EQ(gradient[2], kWeight / 2);
    EXPECT_EQ(gradient[5], -kWeight / 2);
    EXPECT_EQ(gradient[7], 0.0F);
    EXPECT_EQ(ComputeLoss(masked, 7, nullptr), static_cast<double>(kFloatInfinity));
  }
}

// Whatever is not a number must be seen in the loss: that is where the update is stopped.
TEST_F(CrossEntropyCuda, NanPropagatesToLoss) {
  for (const std::size_t columns : {10, 2000}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kFloatInfinity}) {
      for (const std::size_t place : {std::size_t{0}, std::size_t{3}, columns - 1}) {
        std::vector<float> row(columns, 0.5F);
        row[place] = bad;
        EXPECT_FALSE(std::isfinite(ComputeLoss(row, 3, nullptr))) << columns << " " << place;
      }
    }
    EXPECT_FALSE(
        std::isfinite(ComputeLoss(std::vector<float>(columns, -kFloatInfinity), 3, nullptr)));
    for (const std::int32_t label : {-1, static_cast<std::int32_t>(columns)}) {
      EXPECT_TRUE(std::isnan(ComputeLoss(std::vector<float>(columns, 0.5F), label, nullptr)))
          << label;
    }
  }
}

// The same loss by the CPU's two kernels.
TokenLosses OfTheCpu(const Example& example, const std::vector<float>& weights, float smoothing) {
  GraphBench bench;
  const ValueId z = bench.Parameter("z", {example.size.rows, example.size.columns});
  std::vector<ValueId> inputs = {z, bench.Ids("labels", {example.size.rows}, example.labels)};
  if (!weights.empty()) inputs.push_back(bench.Input("weights", {example.size.rows}, weights));
  const TokenCrossEntropyOptions options{.label_smoothing = smoothing};
  const auto outputs = bench.ApplyAll(std::make_shared<TokenCrossEntropy>(options), inputs);
  bench.graph().MarkOutput(outputs[1]);
  bench.PrepareTraining(outputs[0]);
  std::ranges::copy(example.logits, bench.parameter("z").begin());
  bench.Run();
  const auto gradient = bench.gradient("z");
  return {bench.objective(),
          *bench.executor().Output<double>(outputs[1]),
          {gradient.begin(), gradient.end()}};
}

class TokenLossCuda : public CrossEntropyCuda {
 protected:
  // Loss and gradient elsewhere.
  TokenLosses OfTheGpu(const Example& example, const std::vector<float>& weights, float smoothing) {
    const GpuFloats logits(example.dtype, example.logits);
    // What nobody writes stays 7.
    const GpuFloats out(example.dtype, std::vector<float>(example.logits.size() + 1, 7));
    TokenLosses of_gpu = Run(example, weights, smoothing, logits, &out);
    of_gpu.gradient = out.Values();
    EXPECT_EQ(of_gpu.gradient.back(), 7) << "written beyond the last row";
    of_gpu.gradient.pop_back();
    return of_gpu;
  }

  void Check(const Example& example, bool weighted, float smoothing) {
    SCOPED_TRACE(StrCat(Name(example.dtype), " ", example.size.rows, " x ", example.size.columns,
                        weighted ? " weighted" : "", " smoothing ", smoothing));
    const auto rows = static_cast<std::size_t>(example.size.rows);
    const std::vector<float> weights = weighted ? RandomValues(5, rows, 2) : std::vector<float>();
    const TokenLosses expected = OfTheCpu(example, weights, smoothing);
    const TokenLosses found = OfTheGpu(example, weights, smoothing);
    EXPECT_NEAR(found.loss, expected.loss, 2e-6 * static_cast<double>(rows) * 12);
    EXPECT_EQ(found.weight, expected.weight);
    const auto of_class =
        static_cast<double>(smoothing) / static_cast<double>(example.size.columns);
    for (std::size_t i = 0; i < found.gradient.size(); ++i) {
      const std::size_t row = i / static_cast<std::size_t>(example.size.columns);
      const double weight = static_cast<double>(kWeight) * (weighted ? std::abs(weights[row]) : 1);
      const auto e = static_cast<double>(expected.gradient[i]);
      const bool at_label = std::cmp_equal(i % example.row(0).size(), example.labels[row]);
      ASSERT_NEAR(static_cast<double>(found.gradient[i]), e,
                  Allowed(example.dtype) * (std::abs(e) + weight * of_class) +
                      (at_label ? 4e-7 * weight : 0) + MinRoundingError(example.dtype))
          << i;
    }
    const GpuFloats logits(example.dtype, example.logits);
    const TokenLosses loss_only = Run(example, weights, smoothing, logits, nullptr);
    EXPECT_EQ(loss_only.loss, found.loss);
    EXPECT_EQ(loss_only.weight, found.weight);
    const TokenLosses in_place = Run(example, weights, smoothing, logits, &logits);
    EXPECT_EQ(in_place.loss, found.loss);
    EXPECT_EQ(logits.Values(), found.gradient);
  }
};

// More rows than blocks, so that a block meets ignored rows between others.
TEST_F(TokenLossCuda, EqualsCpu) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t columns : {2, 41, 1024, 1025, 4096}) {
      Example example = MakeExample(dtype, {columns > 1024 ? 9 : 37, columns}, 6);
      for (const std::size_t ignored : {2, 3, 4, 7}) example.labels[ignored] = -100;
      for (const bool weighted : {false, true}) {
        for (const float smoothing : {0.0F, 0.25F}) Check(example, weighted, smoothing);
      }
    }
    Example wide = MakeExample(dtype, {3, 50257}, 6);
    wide.labels[0] = -100;
    Check(wide, true, 0.1F);
  }
}

// Rows at a distance: they are read 16 bytes at a time, which ends in what lies between.
// That is NaN, and counts nothing; nobody writes beyond the last row's.
TEST_F(TokenLossCuda, StridedRows) {
  const float nan = std::nanf("");
  for (const DType dtype : kFloatTypes) {
    for (const Matrix size :
         {Matrix{5, 41, 48}, {9, 1030, 1088}, {9, 1030, 1031}, {3, 50257, 50304}}) {
      Example example = MakeExample(dtype, {size.rows, size.columns}, 6);
      for (const std::size_t ignored : {1, 2}) example.labels[ignored] = -100;
      SCOPED_TRACE(StrCat(Name(dtype), " ", size.columns, " of ", size.stride));
      const TokenLosses expected = OfTheGpu(example, {}, 0.25F);
      Example spread = example;
      spread.size = size;
      spread.logits = Spread(example.logits, size, nan);
      TokenLosses found = OfTheGpu(spread, {}, 0.25F);
      EXPECT_NEAR(found.loss, expected.loss, 2e-6 * expected.loss);
      EXPECT_EQ(found.weight, expected.weight);
      const std::vector<float> gradient = Gathered(found.gradient, size);
      if (size.columns > 1024) {  // whether in vectors: what their last one writes tells
        const auto behind = static_cast<std::size_t>(size.columns);
        EXPECT_EQ(found.gradient[behind], size.stride % 8 == 0 ? 0 : 7);
      }
      for (std::size_t i = 0; i < gradient.size(); ++i) {
        ASSERT_NEAR(gradient[i], expected.gradient[i],
                    Allowed(dtype) * (std::abs(static_cast<double>(expected.gradient[i])) +
                                      1.0 / static_cast<double>(size.columns)));
      }
      const GpuFloats in_place(dtype, spread.logits);
      EXPECT_EQ(Run(spread, {}, 0.25F, in_place, &in_place).loss, found.loss);
      const std::vector<float> values = in_place.Values();
      EXPECT_EQ(Gathered(values, size), gradient);
      if (size.columns <= 1024 || size.stride % 8 != 0) continue;
      // A product that reads whole vectors must not find the NaN.
      const auto width = static_cast<std::int64_t>(16 / SizeOf(dtype));
      const std::int64_t end = (size.columns + width - 1) / width * width;
      for (std::int64_t row = 0; row + 1 < size.rows; ++row) {
        for (std::int64_t c = size.columns; c < end; ++c) {
          ASSERT_EQ(values[static_cast<std::size_t>(row * size.stride + c)], 0) << row << " " << c;
        }
      }
    }
  }
}

TEST_F(TokenLossCuda, AllLabelsIgnored) {
  for (const std::int64_t columns : {10, 2000}) {
    Example example = MakeExample(DType::kF32, {5, columns}, 6);
    std::ranges::fill(example.labels, -100);
    example.logits[3] = std::numeric_limits<float>::quiet_NaN();
    const TokenLosses found = OfTheGpu(example, {}, 0.1F);
    EXPECT_EQ(found.loss, 0);
    EXPECT_EQ(found.weight, 0);
    EXPECT_EQ(found.gradient, std::vector<float>(example.logits.size()));
  }
}

TEST_F(TokenLossCuda, IgnoredLabelMayBeAClass) {
  Example example = MakeExample(DType::kF32, {4, 6}, 3);
  example.labels = {1, 2, 1, 0};
  const GpuFloats logits(DType::kF32, example.logits);
  const GpuArray<std::int32_t> labels(example.labels);
  const GpuArray<double> sums(2);
  EXPECT_OK(EnqueueTokenCrossEntropy(on_, DType::kF32, logits.data(), labels.data(), nullptr,
                                     {1, 0}, nullptr, example.size, sums.data(), sums.data() + 1,
                                     nullptr));
  example.labels = {-100, 2, -100, 0};
  EXPECT_EQ(sums.Value(), OfTheGpu(example, {}, 0).loss);
  EXPECT_EQ(sums.Values()[1], 2);
}

// A label that is no class: the loss is NaN, its row gets no gradient, and nothing else changes.
TEST_F(TokenLossCuda, WrongLabelMakesLossNan) {
  for (const std::int64_t columns : {10, 2000}) {
    for (const std::int32_t wrong : {-1, static_cast<std::int32_t>(columns)}) {
      Example example = MakeExample(DType::kF32, {5, columns}, 6);
      const TokenLosses right = OfTheGpu(example, {}, 0);
      example.labels[2] = wrong;
      const TokenLosses found = OfTheGpu(example, {}, 0);
      EXPECT_TRUE(std::isnan(found.loss));
      EXPECT_EQ(found.weight, 5);
      std::vector<float> expected = right.gradient;
      std::fill_n(expected.begin() + 2 * columns, columns, 0.0F);
      EXPECT_EQ(found.gradient, expected);
    }
  }
}

// Large logits with a common offset lose nothing to smoothing; infinite ones are as on the CPU.
TEST_F(TokenLossCuda, ExtremeLogits) {
  for (const std::int64_t columns : {10, 2000}) {
    Example offset = MakeExample(DType::kF32, {5, columns}, 6);
    for (float& z : offset.logits) z += 30000;
    Check(offset, false, 0.25F);
    for (const float bad : {-kFloatInfinity, kFloatInfinity, std::nanf("")}) {
      for (const float smoothing : {0.0F, 0.25F}) {
        for (const std::size_t label : {0, 3}) {
          Example example{DType::kF32, {1, columns}, {}, {static_cast<std::int32_t>(label)}};
          example.logits.assign(static_cast<std::size_t>(columns), 0.5F);
          example.logits[3] = bad;
          const double expected = OfTheCpu(example, {}, smoothing).loss;
          const double found = OfTheGpu(example, {}, smoothing).loss;
          SCOPED_TRACE(StrCat(columns, " ", bad, " ", smoothing, " ", label));
          if (std::isfinite(expected)) {
            EXPECT_NEAR(found, expected, 1e-6 * expected);
          } else {
            EXPECT_EQ(std::isnan(found), std::isnan(expected)) << found;
            EXPECT_FALSE(std::isfinite(found));
          }
        }
      }
    }
  }
}

TEST_F(LossesCuda, LabelRanksOfTiesNaNsAndWrongLabels) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> logits = {1,
                                     3,
                                     2,
                                     /**/ 5,
                                     5,
                                     1,
                                     5,
                                     5,
                                     1,
                                     /**/ -1,
                                     -2,
                                     -kFloatInfinity,
                                     nan,
                                     0,
                                     1,
                                     /**/ 1,
                                     nan,
                                     0,
                                     1,
                                     -3,
                                     2,
                                     /**/ -kFloatInfinity,
                                     -kFloatInfinity,
                                     -kFloatInfinity};
  for (const DType dtype : kFloatTypes) {
    const auto [ranks, best] = ComputeLabelRanks(dtype, logits, {1, 0, 1, 2, 0, 0, 3, 1});
    EXPECT_EQ(ranks, (Integers{0, 0, 1, 2, 3, 3, 3, 1}));
    EXPECT_EQ(best, (Integers{1, 0, 0, 0, -1, -1, 2, 0}));
  }
}

TEST_F(LossesCuda, StridedRows) {
  const Matrix size{300, 33, 64};
  const Example example = MakeExample(DType::kBF16, {size.rows, size.columns}, 3);
  const GpuFloats z(example.dtype, Spread(example.logits, size, std::nanf("")));
  const ValueSpec spec{{size.rows, size.columns}, example.dtype, size.stride};
  EXPECT_EQ(ComputeLabelRanks(z, spec, example.labels),
            ComputeLabelRanks(example.dtype, example.logits, example.labels));

  const auto sums_of = [this](const GpuFloats& dy, Matrix of) {
    const GpuArray<float> db(static_cast<std::size_t>(of.columns));
    const GpuArray<float> scratch(BiasGradientScratchBytes(of) / sizeof(float) + 1);
    EXPECT_OK(
        EnqueueBiasGradient(on_, DType::kBF16, dy.data(), of, db.data(), false, scratch.data()));
    return db.Values();
  };
  const GpuFloats dense(example.dtype, example.logits);
  EXPECT_EQ(sums_of(z, size), sums_of(dense, example.size));

  const GpuFloats bias(example.dtype, RandomValues(1, 33));
  EXPECT_OK(EnqueueAddBias(on_, example.dtype, bias.data(), z.data(), size, true));
  EXPECT_OK(EnqueueAddBias(on_, example.dtype, bias.data(), dense.data(), example.size, true));
  const std::vector<float> spread = z.Values();
  EXPECT_EQ(Gathered(spread, size), dense.Values());
  EXPECT_TRUE(std::isnan(spread[33]));
}

TEST_F(LossesCuda, LabelRanksOfManyRows) {
  for (const std::int64_t columns : {1, 31, 33, 1000, 4097}) {
    const Example example = MakeExample(DType::kF32, {300, columns}, 3);
    Integers ranks;
    Integers best;
    for (std::int64_t m = 0; m < 300; ++m) {
      const auto row = example.row(m);
      std::vector<std::size_t> order(row.size());
      std::iota(order.begin(), order.end(), 0);
      std::ranges::stable_sort(order, std::greater(), [&](std::size_t c) { return row[c]; });
      const auto label = static_cast<std::size_t>(example.labels[static_cast<std::size_t>(m)]);
      ranks.push_back(static_cast<std::int32_t>(std::ranges::find(order, label) - order.begin()));
      best.push_back(static_cast<std::int32_t>(order[0]));
    }
    EXPECT_EQ(ComputeLabelRanks(DType::kF32, example.logits, example.labels),
              std::pair(ranks, best))
        << columns;
  }
}

TEST_F(LossesCuda, MeanSquaredError) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t columns : {1, 31, 33, 1000, 4097}) {
      for (const std::size_t shift : {0, 1}) {
        const auto n = static_cast<std::size_t>(9 * columns);
        const std::vector<float> y = Stored(dtype, RandomValues(n, n, 3));
        const std::vector<float> t = RandomValues(n + 1, n, 3);
        double loss = 0;
        std::vector<double> gradient;
        for (std::size_t i = 0; i < n; ++i) {
          const double difference = static_cast<double>(y[i]) - static_cast<double>(t[i]);
          loss += difference * difference / static_cast<double>(columns);
          gradient.push_back(2 * difference * static_cast<double>(kWeight) /
                             static_cast<double>(columns));
        }
        const GpuFloats gy(dtype, y, shift);
        const GpuArray<float> gt(t);
        const GpuArray<float> weight(std::vector<float>{kWeight});
        const GpuFloats dy(dtype, n);
        const GpuArray<double> sum(1);
        const auto allowed = 1e-6 + 2 * RoundingError(dtype);
        const Operand of_y{{{9, columns}, dtype}, gy.data()};
        const Operand of_t{{{9, columns}, DType::kF32}, gt.data()};
        const Operand seed{{{1}, DType::kF32}, weight.data()};
        EXPECT_OK(
            RunNode(MakeMeanSquaredErrorCuda, MeanSquaredError(), {of_y, of_t}, {sum.data()}));
        EXPECT_NEAR(sum.Value(), loss, 1e-12 * loss);
        EXPECT_OK(RunNode(MakeMeanSquaredErrorCuda, MeanSquaredErrorGradient(), {of_y, of_t, seed},
                          {dy.data()}));
        ExpectNear(dtype, dy.Values(), gradient, allowed, "gradient");
        EXPECT_OK(RunNode(MakeMeanSquaredErrorCuda, MeanSquaredErrorFused(), {of_y, of_t, seed},
                          {gy.data(), sum.data()}));
        EXPECT_NEAR(sum.Value(), loss, 1e-12 * loss);
        EXPECT_EQ(gy.Values(), dy.Values());
      }
    }
  }
}

TEST_F(LossesCuda, SumsOfColumns) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t rows : {1, 7, 127, 300, 3000}) {
      for (const std::int64_t columns : {1, 31, 33, 1000}) {
        const auto n = static_cast<std::size_t>(rows * columns);
        const std::vector<float> dy = Stored(dtype, RandomValues(n, n));
        std::vector<double> sums(static_cast<std::size_t>(columns));
        for (std::size_t i = 0; i < n; ++i) sums[i % sums.size()] += static_cast<double>(dy[i]);
        const GpuFloats gdy(dtype, dy);
        const GpuArray<float> db(std::vector<float>(sums.size(), 1e9F));
        const GpuArray<float> scratch(BiasGradientScratchBytes({rows, columns}) / sizeof(float) +
                                      1);
        for (const bool add : {false, true}) {
          EXPECT_OK(EnqueueBiasGradient(on_, dtype, gdy.data(), {rows, columns}, db.data(), add,
                                        scratch.data()));
        }
        const std::vector<float> found = db.Values();
        for (std::size_t c = 0; c < sums.size(); ++c) {
          ASSERT_NEAR(static_cast<double>(found[c]), 2 * sums[c],
                      1e-7 * std::sqrt(static_cast<double>(rows)) * 10)
              << rows << " x " << columns;
        }
      }
    }
  }
}

}  // namespace
}  // namespace gaccd
