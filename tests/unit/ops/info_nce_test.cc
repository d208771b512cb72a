// The contrastive loss against its definition in f64, spread over ranks in many ways.
#include "daemon/ops/loss/info_nce.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "daemon/tensor/random.h"

namespace gaccd {
namespace {

std::size_t Size(std::int64_t elements) { return static_cast<std::size_t>(elements); }

std::vector<float> Rows(std::int64_t samples, std::int64_t width) {
  std::vector<float> rows(Size(2 * samples * width));
  for (std::int64_t row = 0; row < 2 * samples; ++row) {
    double squares = 0;
    for (std::int64_t d = 0; d < width; ++d) {
      const double value = StandardNormal(7, Size(row * width + d));
      rows[Size(row * width + d)] = static_cast<float>(value);
      squares += value * value;
    }
    for (std::int64_t d = 0; d < width; ++d) {
      rows[Size(row * width + d)] /= static_cast<float>(std::sqrt(squares));
    }
  }
  return rows;
}

// loss = 1/B sum_i [ (A_i + B_i)/2 - s_ii ]
double ComputeLoss(std::span<const double> rows, std::int64_t width, double scale) {
  const std::int64_t samples = std::ssize(rows) / (2 * width);
  const auto s = [&](std::int64_t i, std::int64_t j) {
    const double* a = rows.data() + i * 2 * width;
    const double* b = rows.data() + j * 2 * width + width;
    return scale * std::inner_product(a, a + width, b, 0.0);
  };
  double loss = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    double along = 0;
    double across = 0;
    for (std::int64_t j = 0; j < samples; ++j) {
      along += std::exp(s(i, j));
      across += std::exp(s(j, i));
    }
    loss += (std::log(along) + std::log(across)) / 2 - s(i, i);
  }
  return loss / static_cast<double>(samples);
}

struct Found {
  double loss = 0;
  double log_scale_gradient = 0;
  std::vector<float> gradients;
};

// As ranks with so many samples each would: first all log sums, then all gradients.
Found Spread(const std::vector<float>& rows, std::int64_t width, double scale,
             const std::vector<std::int64_t>& ranks) {
  InfoNce loss(width);
  Found found{.gradients = std::vector<float>(rows.size())};
  std::vector<double> sums(rows.size() / Size(width));
  const auto each_rank = [&](const auto& visit) {
    std::int64_t first = 0;
    for (const std::int64_t own : ranks) {
      visit(ContrastiveRows{
          .rows = rows, .width = width, .first = first, .own = own, .scale = scale});
      first += own;
    }
  };
  each_rank([&](const ContrastiveRows& batch) {
    loss.LogSums(batch, std::span(sums).subspan(Size(2 * batch.first), Size(2 * batch.own)));
  });
  each_rank([&](const ContrastiveRows& batch) {
    const ContrastiveSums own =
        loss.Gradients(batch, sums,
                       std::span(found.gradients)
                           .subspan(Size(2 * width * batch.first), Size(2 * width * batch.own)));
    found.loss += own.loss;
    found.log_scale_gradient += own.log_scale_gradient;
  });
  found.loss /= static_cast<double>(rows.size() / Size(2 * width));
  return found;
}

// Central differences of the definition in f64.
TEST(InfoNceTest, GradientsEqualDefinition) {
  constexpr std::int64_t kWidth = 5;
  constexpr double kScale = 7;
  constexpr double kStep = 1e-5;
  const std::vector<float> rows = Rows(11, kWidth);
  const Found found = Spread(rows, kWidth, kScale, {4, 0, 7});
  std::vector<double> exact(rows.begin(), rows.end());
  EXPECT_NEAR(found.loss, ComputeLoss(exact, kWidth, kScale), 1e-6);
  const double by_scale = (ComputeLoss(exact, kWidth, kScale * std::exp(kStep)) -
                           ComputeLoss(exact, kWidth, kScale * std::exp(-kStep))) /
                          (2 * kStep);
  EXPECT_NEAR(found.log_scale_gradient, by_scale, 1e-6 * std::abs(by_scale) + 1e-7);
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double value = exact[i];
    exact[i] = value + kStep;
    const double more = ComputeLoss(exact, kWidth, kScale);
    exact[i] = value - kStep;
    const double less = ComputeLoss(exact, kWidth, kScale);
    exact[i] = value;
    ASSERT_NEAR(found.gradients[i], (more - less) / (2 * kStep), 2e-6) << i;
  }
}

// More samples than a block, and tiles that are not full.
TEST(InfoNceTest, BitsDoNotDependOnRanks) {
  constexpr std::int64_t kWidth = 20;
  const std::vector<float> rows = Rows(InfoNce::kBlock + 77, kWidth);
  const Found one = Spread(rows, kWidth, 14.3, {InfoNce::kBlock + 77});
  const Found many = Spread(rows, kWidth, 14.3, {13, 0, 500, 1, InfoNce::kBlock + 77 - 514});
  const std::vector<double> exact(rows.begin(), rows.end());
  EXPECT_NEAR(one.loss, ComputeLoss(exact, kWidth, 14.3), 1e-6);
  EXPECT_EQ(one.gradients, many.gradients);
  EXPECT_NEAR(one.loss, many.loss, 1e-12);
  EXPECT_NEAR(one.log_scale_gradient, many.log_scale_gradient, 1e-12);
}

TEST(InfoNceTest, OnePairHasZeroGradient) {
  const Found found = Spread(Rows(1, 3), 3, 14.3, {1});
  EXPECT_NEAR(found.loss, 0, 1e-12);
  for (const float gradient : found.gradients) EXPECT_NEAR(gradient, 0, 1e-12);
}

TEST(InfoNceTest, LargeScalesDoNotOverflow) {
  const Found found = Spread(Rows(9, 4), 4, 1e4, {5, 4});
  EXPECT_TRUE(std::isfinite(found.loss));
  for (const float gradient : found.gradients) EXPECT_TRUE(std::isfinite(gradient));
}

TEST(InfoNceTest, NanPropagatesToLoss) {
  std::vector<float> rows = Rows(9, 4);
  rows[20] = std::nanf("");
  EXPECT_TRUE(std::isnan(Spread(rows, 4, 10, {5, 4}).loss));
}

}  // namespace
}  // namespace gaccd
