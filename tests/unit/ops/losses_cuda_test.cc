// Losses, softmax, counts and column sums on the GPU against references in double.
#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <utility>

#include "collectives/base/strings.h"
#include "tests/unit/ops/on_gpu.h"

namespace gaccd {
namespace {

using LossesCuda = KernelTest;

constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();
constexpr float kWeight = 0.375F;

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
  std::vector<double> probabilities;
  std::vector<double> gradient;  // times kWeight
};

Reference ReferenceOf(const Example& example) {
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
      reference.probabilities.push_back(p);
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
                relative * std::abs(expected[i]) + 1.001 * LeastOf(dtype))
        << what << " element " << i;
  }
}

// exp of a float argument, and sums of up to 50304 of them, partly in float.
double Allowed(DType dtype) { return 4e-6 + 2 * RoundingOf(dtype); }

class CrossEntropyCuda : public LossesCuda {
 protected:
  // Probabilities; the fused pass elsewhere and in place; only the loss.
  void Check(const Example& example, std::size_t shift) {
    const std::string what = StrCat(Name(example.dtype), " ", example.size.rows, " x ",
                                    example.size.columns, " shift ", shift);
    const Reference reference = ReferenceOf(example);
    const GpuFloats logits(example.dtype, example.logits, shift);
    const GpuArray<std::int32_t> labels(example.labels);
    const GpuArray<float> weight(std::vector<float>{kWeight});
    const GpuArray<double> loss(1);
    const GpuFloats out(example.dtype, example.logits.size());
    EXPECT_OK(EnqueueSoftmaxCrossEntropy(on_, example.dtype, logits.data(), labels.data(),
                                         example.size, loss.data(), out.data()));
    EXPECT_NEAR(loss.Value(), reference.loss, 2e-6 * reference.loss) << what;
    ExpectNear(example.dtype, out.Values(), reference.probabilities, Allowed(example.dtype), what);

    EXPECT_OK(EnqueueSoftmaxCrossEntropyGradient(on_, example.dtype, out.data(), labels.data(),
                                                 weight.data(), example.size, out.data()));
    const double largest = static_cast<double>(kWeight);
    const std::vector<float> gradient = out.Values();
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      ASSERT_NEAR(static_cast<double>(gradient[i]), reference.gradient[i],
                  2 * Allowed(example.dtype) * largest)
          << what << " element " << i;
    }

    const GpuArray<double> again(1);
    EXPECT_OK(EnqueueSoftmaxCrossEntropyFused(on_, example.dtype, logits.data(), labels.data(),
                                              weight.data(), example.size, again.data(),
                                              out.data()));
    EXPECT_EQ(again.Value(), loss.Value()) << what;
    ExpectNear(example.dtype, out.Values(), reference.gradient, Allowed(example.dtype), what);
    const std::vector<float> elsewhere = out.Values();
    EXPECT_OK(EnqueueSoftmaxCrossEntropyFused(on_, example.dtype, logits.data(), labels.data(),
                                              weight.data(), example.size, again.data(),
                                              logits.data()));
    EXPECT_EQ(logits.Values(), elsewhere) << what;
    EXPECT_EQ(again.Value(), loss.Value()) << what;
  }

  double LossOf(const std::vector<float>& row, std::int32_t label, std::vector<float>* gradient) {
    const Matrix size{1, static_cast<std::int64_t>(row.size())};
    const GpuArray<float> logits(row);
    const GpuArray<std::int32_t> labels(std::vector<std::int32_t>{label});
    const GpuArray<float> weight(std::vector<float>{1});
    const GpuArray<double> loss(1);
    EXPECT_OK(EnqueueSoftmaxCrossEntropyFused(on_, DType::kF32, logits.data(), labels.data(),
                                              weight.data(), size, loss.data(), logits.data()));
    if (gradient != nullptr) *gradient = logits.Values();
    return loss.Value();
  }
};

TEST_F(CrossEntropyCuda, NarrowRows) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t columns : {1, 2, 10, 31, 32, 33, 127, 128, 129, 1000, 1024}) {
      for (const std::int64_t rows : {1, 3, 37}) {
        Check(MakeExample(dtype, {rows, columns}, 6), 0);
      }
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
    EXPECT_NEAR(LossOf(row, 3, &gradient) / std::log1p(rest), 1, 1e-6);
    EXPECT_NEAR(static_cast<double>(gradient[3]) / (-rest / (1 + rest)), 1, 1e-6);
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
      EXPECT_NEAR(LossOf(row, 0, &gradient) / gap, 1, 1e-6) << scale;
      EXPECT_EQ(gradient[0], -1);
      EXPECT_EQ(gradient.back(), 1);
      EXPECT_EQ(LossOf(row, static_cast<std::int32_t>(columns) - 1, nullptr), 0) << scale;
    }
    // Classes that are masked out count nothing, in any place.
    std::vector<float> masked(columns, -kFloatInfinity);
    masked[2] = masked[5] = 1;
    std::vector<float> gradient;
    EXPECT_NEAR(LossOf(masked, 5, &gradient), std::log(2.0), 1e-7);
    EXPECT_EQ(gradient[2], 0.5F);
    EXPECT_EQ(gradient[5], -0.5F);
    EXPECT_EQ(gradient[7], 0.0F);
    EXPECT_EQ(LossOf(masked, 7, nullptr), static_cast<double>(kFloatInfinity));
  }
}

// Whatever is not a number must be seen in the loss: that is where the update is stopped.
TEST_F(CrossEntropyCuda, NotANumberShowsInTheLoss) {
  for (const std::size_t columns : {10, 2000}) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), kFloatInfinity}) {
      for (const std::size_t place : {std::size_t{0}, std::size_t{3}, columns - 1}) {
        std::vector<float> row(columns, 0.5F);
        row[place] = bad;
        EXPECT_FALSE(std::isfinite(LossOf(row, 3, nullptr))) << columns << " " << place;
      }
    }
    EXPECT_FALSE(std::isfinite(LossOf(std::vector<float>(columns, -kFloatInfinity), 3, nullptr)));
    for (const std::int32_t label : {-1, static_cast<std::int32_t>(columns)}) {
      EXPECT_TRUE(std::isnan(LossOf(std::vector<float>(columns, 0.5F), label, nullptr))) << label;
    }
  }
}

using Integers = std::vector<std::int32_t>;

// The ranks, then the best classes.
std::pair<Integers, Integers> LabelRanksOf(const KernelStream& on, DType dtype,
                                           const std::vector<float>& logits,
                                           const Integers& labels) {
  const GpuFloats z(dtype, logits);
  const GpuArray<std::int32_t> on_gpu(labels);
  const GpuArray<std::int32_t> ranks(labels.size());
  const GpuArray<std::int32_t> best(labels.size());
  EXPECT_OK(EnqueueLabelRanks(on, dtype, z.data(), on_gpu.data(),
                              {std::ssize(labels), std::ssize(logits) / std::ssize(labels)},
                              ranks.data(), best.data()));
  return {ranks.Values(), best.Values()};
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
    const auto [ranks, best] = LabelRanksOf(on_, dtype, logits, {1, 0, 1, 2, 0, 0, 3, 1});
    EXPECT_EQ(ranks, (Integers{0, 0, 1, 2, 3, 3, 3, 1}));
    EXPECT_EQ(best, (Integers{1, 0, 0, 0, -1, -1, 2, 0}));
  }
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
    EXPECT_EQ(LabelRanksOf(on_, DType::kF32, example.logits, example.labels),
              std::pair(ranks, best))
        << columns;
  }
}

TEST_F(LossesCuda, MeanSquaredError) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t columns : {1, 31, 33, 1000, 4097}) {
      for (const std::size_t shift : {0, 1}) {
        const Matrix size{9, columns};
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
        const auto allowed = 1e-6 + 2 * RoundingOf(dtype);
        EXPECT_OK(EnqueueMeanSquaredError(on_, dtype, gy.data(), gt.data(), nullptr, size,
                                          sum.data(), nullptr));
        EXPECT_NEAR(sum.Value(), loss, 1e-12 * loss);
        EXPECT_OK(EnqueueMeanSquaredError(on_, dtype, gy.data(), gt.data(), weight.data(), size,
                                          nullptr, dy.data()));
        ExpectNear(dtype, dy.Values(), gradient, allowed, "gradient");
        EXPECT_OK(EnqueueMeanSquaredError(on_, dtype, gy.data(), gt.data(), weight.data(), size,
                                          sum.data(), gy.data()));
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
        for (std::size_t i = 0; i < n; ++i) {
          sums[i % sums.size()] += static_cast<double>(dy[i]);
        }
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
