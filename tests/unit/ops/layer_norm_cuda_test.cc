// Layer norm and RMS norm, with and without a residual, and the gradient of layer norm against
// references in double; group norm of equal values.
#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/ops/norm/group_norm.h"
#include "daemon/ops/norm/layer_norm.h"
#include "tests/support/gpu_bench.h"
#include "tests/support/status_matchers.h"

namespace gaccd {
namespace {

using LayerNormCuda = MakerTest;
using GroupNormCuda = MakerTest;

struct NormExample {
  DType dtype;
  Matrix size;
  std::vector<float> dy, x, residual;  // as stored
  std::vector<float> gamma, mean, rstd;
};

NormExample MakeNormExample(DType dtype, Matrix size) {
  const auto elements = static_cast<std::size_t>(size.rows * size.columns);
  const auto rows = static_cast<std::size_t>(size.rows);
  const auto values = [&](std::uint64_t seed, double limit) {
    return Stored(dtype, RandomValues(seed, elements, limit));
  };
  NormExample example{dtype,
                      size,
                      values(1, 1),
                      values(2, 3),
                      values(3, 2),
                      RandomValues(4, static_cast<std::size_t>(size.columns), 1),
                      RandomValues(5, rows, 0.5),
                      RandomValues(6, rows, 0.1)};
  for (float& rstd : example.rstd) rstd += 0.6F;  // the formula holds for any
  return example;
}

struct NormReference {
  std::vector<double> dx, dgamma, dbeta;
};

NormReference ComputeReference(const NormExample& example) {
  const auto columns = static_cast<std::size_t>(example.size.columns);
  NormReference reference{{}, std::vector<double>(columns), std::vector<double>(columns)};
  for (std::size_t n = 0; n < example.mean.size(); ++n) {
    const auto at = [&](const std::vector<float>& values, std::size_t d) {
      return static_cast<double>(values[n * columns + d]);
    };
    const auto rstd = static_cast<double>(example.rstd[n]);
    const auto h = [&](std::size_t d) {
      return (at(example.x, d) - static_cast<double>(example.mean[n])) * rstd;
    };
    double sum = 0;
    double product = 0;
    for (std::size_t d = 0; d < columns; ++d) {
      const double g = at(example.dy, d) * static_cast<double>(example.gamma[d]);
      sum += g / static_cast<double>(columns);
      product += g * h(d) / static_cast<double>(columns);
      reference.dgamma[d] += at(example.dy, d) * h(d);
      reference.dbeta[d] += at(example.dy, d);
    }
    for (std::size_t d = 0; d < columns; ++d) {
      const double g = at(example.dy, d) * static_cast<double>(example.gamma[d]);
      reference.dx.push_back(rstd * (g - sum - h(d) * product));
    }
  }
  return reference;
}

struct Found {
  std::vector<float> dx, dgamma, dbeta;
  bool operator==(const Found&) const = default;
};

// In place of dy, or of the residual. Overwrites the gradient of gamma and adds to that of beta,
// which is 5.
enum class Into { kDy, kResidual };
Found ComputeGradient(const KernelStream& on, const NormExample& example, bool add_residual,
                      std::size_t shift, Into into = Into::kDy) {
  const GpuFloats dy(example.dtype, example.dy, shift);
  const GpuFloats x(example.dtype, example.x, shift);
  const GpuFloats residual(example.dtype, example.residual, shift);
  const GpuFloats& dx = into == Into::kDy ? dy : residual;
  const GpuArray<float> gamma(example.gamma);
  const GpuArray<float> mean(example.mean);
  const GpuArray<float> rstd(example.rstd);
  const GpuArray<float> dgamma(std::vector<float>(example.gamma.size(), 1e9F));
  const GpuArray<float> dbeta(std::vector<float>(example.gamma.size(), 5));
  const GpuArray<float> scratch(
      std::vector<float>(LayerNormGradientScratchBytes(example.size) / sizeof(float), 1e9F));
  const LayerNormGradients to{dx.data(), dgamma.data(), dbeta.data(), false, true};
  EXPECT_OK(EnqueueLayerNormGradient(on, example.dtype, dy.data(), x.data(),
                                     add_residual ? residual.data() : nullptr, gamma.data(),
                                     mean.data(), rstd.data(), example.size, to, scratch.data()));
  return {dx.Values(), dgamma.Values(), dbeta.Values()};
}

void CheckNorm(const KernelStream& on, DType dtype, Matrix size, std::size_t shift = 0) {
  SCOPED_TRACE(StrCat(Name(dtype), " ", size.rows, " x ", size.columns, " shift ", shift));
  const NormExample example = MakeNormExample(dtype, size);
  const NormReference expected = ComputeReference(example);
  for (const bool add_residual : {false, true}) {
    const Found found = ComputeGradient(on, example, add_residual, shift);
    for (std::size_t i = 0; i < found.dx.size(); ++i) {
      const double wanted =
          expected.dx[i] + (add_residual ? static_cast<double>(example.residual[i]) : 0);
      ASSERT_NEAR(static_cast<double>(found.dx[i]), wanted,
                  1.01 * RoundingError(dtype) * std::abs(wanted) + 2e-6)
          << "dx " << i;
    }
    const double allowed = 2e-7 * static_cast<double>(size.rows) + 1e-6;
    for (std::size_t d = 0; d < found.dgamma.size(); ++d) {
      ASSERT_NEAR(static_cast<double>(found.dgamma[d]), expected.dgamma[d], 3 * allowed) << d;
      ASSERT_NEAR(static_cast<double>(found.dbeta[d]), 5 + expected.dbeta[d], allowed) << d;
    }
    if (!add_residual) continue;
    const bool again = found == ComputeGradient(on, example, add_residual, shift, Into::kResidual);
    EXPECT_TRUE(again) << "other bits in place of the residual";
  }
}

TEST_F(LayerNormCuda, Gradients) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const std::int64_t columns : {1, 33, 768, 1024, 5000}) {
      for (const std::int64_t rows : {1, 63, 64}) {
        if (columns < 5000 || rows < 64) CheckNorm(on_, dtype, {rows, columns});
      }
    }
    CheckNorm(on_, dtype, {1000, 33});
    CheckNorm(on_, dtype, {40, 1024}, 1);
    CheckNorm(on_, dtype, {3, 5000}, 1);
  }
  CheckNorm(on_, DType::kBF16, {500, 768});
  CheckNorm(on_, DType::kFP16, {64, 768});
  CheckNorm(on_, DType::kF32, {13000, 2});  // more rows than parts
}

struct NormOutputs {
  std::vector<float> y, mean, rstd;
};

// With a mean and beta, or as RMS norm without.
void CheckOutputs(const NormExample& example, const std::vector<float>& x, bool centered,
                  const NormOutputs& found) {
  const auto columns = static_cast<std::size_t>(example.size.columns);
  for (std::size_t n = 0; n < example.mean.size(); ++n) {
    const auto at = [&](std::size_t d) { return static_cast<double>(x[n * columns + d]); };
    double mean = 0;
    double squares = 0;
    for (std::size_t d = 0; d < columns && centered; ++d) {
      mean += at(d) / static_cast<double>(columns);
    }
    for (std::size_t d = 0; d < columns; ++d) {
      squares += std::pow(at(d) - mean, 2) / static_cast<double>(columns);
    }
    const double rstd = 1 / std::sqrt(squares + 0.25);
    if (centered) {
      ASSERT_NEAR(static_cast<double>(found.mean[n]), mean, 2e-6) << n;
    }
    ASSERT_NEAR(static_cast<double>(found.rstd[n]), rstd, 2e-6) << n;
    for (std::size_t d = 0; d < columns; ++d) {
      const double scaled = (at(d) - mean) * rstd * static_cast<double>(example.gamma[d]);
      const double beta = centered ? static_cast<double>(example.gamma[columns - 1 - d]) : 0;
      ASSERT_NEAR(static_cast<double>(found.y[n * columns + d]), scaled + beta,
                  1.01 * RoundingError(example.dtype) * std::abs(scaled + beta) + 1e-5)
          << n << ", " << d;
    }
  }
}

// Of x and y, of gamma and beta; see GpuArray.
struct Shifts {
  std::size_t values, parameters;
};

// A sum is written in place of its residual.
class LayerNormOutputsCuda : public MakerTest {
 protected:
  void Check(DType dtype, Matrix size, Shifts shifts = {}) {
    SCOPED_TRACE(StrCat(Name(dtype), " ", size.rows, " x ", size.columns, " shifts ", shifts.values,
                        " ", shifts.parameters));
    const NormExample example = MakeNormExample(dtype, size);
    const std::vector<float> none(example.x.size());
    const GpuFloats x(dtype, example.x, shifts.values);
    const GpuFloats residual(dtype, example.residual, shifts.values);
    const GpuFloats y(dtype, none, shifts.values);
    const GpuArray<float> gamma(example.gamma, shifts.parameters);
    const GpuArray<float> beta({example.gamma.rbegin(), example.gamma.rend()}, shifts.parameters);
    const GpuArray<float> mean(example.mean.size());
    const GpuArray<float> rstd(example.mean.size());
    const Operand of_x{{{size.rows, size.columns}, dtype}, x.data()};
    const Operand of_gamma{{{size.columns}, DType::kF32}, gamma.data()};
    const Operand of_beta{{{size.columns}, DType::kF32}, beta.data()};
    ASSERT_OK(RunNode(MakeLayerNormCuda, LayerNorm(0.25F), {of_x, of_gamma, of_beta},
                      {y.data(), mean.data(), rstd.data()}));
    CheckOutputs(example, example.x, true, {y.Values(), mean.Values(), rstd.Values()});
    ASSERT_OK(RunNode(MakeRmsNormCuda, RmsNorm(0.25F), {of_x, of_gamma}, {y.data(), rstd.data()}));
    CheckOutputs(example, example.x, false, {y.Values(), {}, rstd.Values()});

    const Operand of_residual{of_x.spec, residual.data()};
    ASSERT_OK(RunNode(MakeAddLayerNormCuda, AddLayerNorm(0.25F),
                      {of_x, of_residual, of_gamma, of_beta},
                      {residual.data(), y.data(), mean.data(), rstd.data()}));
    std::vector<float> sum = example.x;
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += example.residual[i];
    sum = Stored(dtype, sum);
    EXPECT_EQ(residual.Values(), sum);
    CheckOutputs(example, sum, true, {y.Values(), mean.Values(), rstd.Values()});
  }
};

// Rows that a warp has in registers, of few and of many vectors, and longer ones.
TEST_F(LayerNormOutputsCuda, RowsOfAnyLength) {
  for (const DType dtype : kFloatTypes) {
    for (const std::int64_t columns : {1, 33, 300, 768, 1024, 1032, 4104, 5000}) {
      Check(dtype, {3, columns});
    }
    Check(dtype, {40, 72});  // more rows than one launch covers at once
    Check(dtype, {3, 768}, {1, 0});
    Check(dtype, {3, 768}, {0, 1});
    Check(dtype, {2, 5000}, {0, 1});
  }
}

// The mean of equal values is one of them, in spite of the rounding of their sum.
TEST_F(GroupNormCuda, EqualValuesAreZero) {
  constexpr std::int64_t kChannels = 4;
  for (const DType dtype : kFloatTypes) {
    const std::vector<float> values = Stored(dtype, std::vector<float>(50 * 50 * 4, 1000.1F));
    const GpuFloats x(dtype, values);
    const GpuFloats y(dtype, values.size());
    const GpuArray<float> gamma(std::vector<float>(4, 1.0F));
    const GpuArray<float> beta(4);
    const GpuArray<float> mean(2);
    const GpuArray<float> rstd(2);
    ASSERT_OK(RunNode(MakeGroupNormCuda, GroupNorm(2, 0.25F),
                      {{{{1, 50, 50, kChannels}, dtype}, x.data()},
                       {{{kChannels}, DType::kF32}, gamma.data()},
                       {{{kChannels}, DType::kF32}, beta.data()}},
                      {y.data(), mean.data(), rstd.data()}));
    EXPECT_EQ(y.Values(), std::vector<float>(values.size())) << Name(dtype);
    EXPECT_EQ(mean.Values(), std::vector<float>(2, values[0])) << Name(dtype);
    EXPECT_NEAR(static_cast<double>(rstd.Values()[0]), 2, 1e-6) << Name(dtype);
  }
}

// Sums over many pixels: 0.1 in f32 is 0.10000000149.
TEST_F(GroupNormCuda, GradientOfManyPixels) {
  constexpr std::int64_t kSide = 200;
  const std::vector<float> values(kSide * kSide * 2, 0.1F);
  const GpuArray<float> x(values);
  const GpuArray<float> dx(values.size());
  const GpuArray<float> gamma(std::vector<float>(2, 1.0F));
  const GpuArray<float> mean(1);
  const GpuArray<float> rstd(std::vector<float>(1, 1.0F));
  const GpuArray<float> dgamma(2);
  const GpuArray<float> dbeta(2);
  const Operand image{{{1, kSide, kSide, 2}, DType::kF32}, x.data()};
  const Operand statistic{{{1, 1}, DType::kF32}, mean.data()};
  ASSERT_OK(RunNode(
      MakeGroupNormGradientCuda, GroupNormGradient(),
      {image, image, {{{2}, DType::kF32}, gamma.data()}, statistic, {statistic.spec, rstd.data()}},
      {dx.data(), dgamma.data(), dbeta.data()}));
  EXPECT_NEAR(static_cast<double>(dbeta.Values()[1]), kSide * kSide * 0.10000000149, 5e-3);
  EXPECT_NEAR(static_cast<double>(dgamma.Values()[1]), kSide * kSide * 0.0100000003, 1e-4);
}

// As on the CPU and in PyTorch: values whose norm is unknown are not finite.
TEST_F(LayerNormOutputsCuda, NanMakesAWholeRowNan) {
  constexpr std::size_t kColumns = 40;
  for (const DType dtype : kFloatTypes) {
    std::vector<float> values(2 * kColumns, 1.0F);
    values[3] = NAN;
    const GpuFloats x(dtype, values);
    const GpuFloats y(dtype, values.size());
    const GpuArray<float> gamma(std::vector<float>(kColumns, 1.0F));
    const GpuArray<float> beta(kColumns);
    const GpuArray<float> mean(2);
    const GpuArray<float> rstd(2);
    const Operand of_x{{{2, std::int64_t{kColumns}}, dtype}, x.data()};
    const Operand of_gamma{{{std::int64_t{kColumns}}, DType::kF32}, gamma.data()};
    const Operand of_beta{{{std::int64_t{kColumns}}, DType::kF32}, beta.data()};
    for (const bool centered : {false, true}) {
      ASSERT_OK(centered ? RunNode(MakeLayerNormCuda, LayerNorm(0.25F), {of_x, of_gamma, of_beta},
                                   {y.data(), mean.data(), rstd.data()})
                         : RunNode(MakeRmsNormCuda, RmsNorm(0.25F), {of_x, of_gamma},
                                   {y.data(), rstd.data()}));
      const std::vector<float> found = y.Values();
      for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_EQ(std::isnan(found[i]), i < kColumns)
            << Name(dtype) << ", " << centered << ", " << i;
      }
      EXPECT_TRUE(std::isnan(rstd.Values()[0])) << Name(dtype) << ", " << centered;
    }
  }
}

}  // namespace
}  // namespace gaccd
