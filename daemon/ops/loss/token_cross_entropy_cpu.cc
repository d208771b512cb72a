#include <cmath>
#include <limits>

#include "collectives/base/simd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/loss/token_cross_entropy.h"
#include "daemon/ops/norm/row_reductions.h"
#include "daemon/ops/pointwise/elementwise.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

struct Sizes {
  std::int64_t rows, classes;
  std::int32_t ignored;
  float smoothing;
};

Sizes MakeSizes(const TokenCrossEntropyOptions& options, const ValueSpec& logits) {
  return {logits.shape[0], logits.shape[1], options.ignored_label, options.label_smoothing};
}

// The terms of the label and of the others are kept separate, see SoftmaxRow.
GACCD_SIMD_CLONES
SoftmaxRow ComputeSoftmaxRow(const float* z, std::int64_t classes, std::int64_t label) {
  const float top = FindLargest(z, classes);
  const auto term = [z, top](std::int64_t c) { return Exp(z[c] - top); };
  const double before = SumValuesInBlocks(label, term);
  const double after = SumValuesInBlocks(
      classes - label - 1, [z, top, label](std::int64_t c) { return Exp(z[label + 1 + c] - top); });
  return {top, static_cast<float>(before + after), Exp(z[label] - top)};
}

GACCD_SIMD_CLONES
double SumDistancesToTop(const float* z, std::int64_t classes, float top) {
  return SumValuesInBlocks(classes, [z, top](std::int64_t c) { return top - z[c]; });
}

// The loss of one row, without its weight.
double RowLoss(const Sizes& size, const float* z, std::int64_t label, const SoftmaxRow& row) {
  const double loss = CrossEntropy(row, z[label]);
  if (size.smoothing == 0) return loss;
  const auto smoothing = static_cast<double>(size.smoothing);
  const double of_all =
      std::log(static_cast<double>(row.rest) + static_cast<double>(row.label)) +
      SumDistancesToTop(z, size.classes, row.top) / static_cast<double>(size.classes);
  return (1 - smoothing) * loss + smoothing * of_all;
}

Status Forward(const Sizes& size, const float* logits, const std::int32_t* labels,
               const float* weights, const Call& c) {
  double loss_sum = 0;
  double weight_sum = 0;
  auto* statistics = c.out<float>(2);
  for (std::int64_t n = 0; n < size.rows; ++n) {
    statistics[2 * n] = statistics[2 * n + 1] = 0;
    const std::int64_t label = labels[n];
    if (label == size.ignored) continue;
    const double weight = weights == nullptr ? 1.0 : static_cast<double>(weights[n]);
    weight_sum += weight;
    if (label < 0 || label >= size.classes) {
      loss_sum = std::numeric_limits<double>::quiet_NaN();
      continue;
    }
    const float* z = logits + n * size.classes;
    const SoftmaxRow row = ComputeSoftmaxRow(z, size.classes, label);
    loss_sum += weight * RowLoss(size, z, label, row);
    statistics[2 * n] = row.top;
    statistics[2 * n + 1] = row.total();
  }
  *c.out<double>(0) = loss_sum;
  *c.out<double>(1) = weight_sum;
  return Status::Ok();
}

// dz may alias z.
GACCD_SIMD_CLONES
void GradientRow(const float* z, std::int64_t classes, float top, float scale, float everywhere,
                 float* dz) {
  for (std::int64_t c = 0; c < classes; ++c) dz[c] = Exp(z[c] - top) * scale - everywhere;
}

Status Backward(const Sizes& size, const float* weights, const Call& c) {
  const auto* labels = c.in<std::int32_t>(1);
  const auto* statistics = c.in<float>(2);
  const float dloss = *c.in<float>(3);
  for (std::int64_t n = 0; n < size.rows; ++n) {
    const float* z = c.in<float>(0) + n * size.classes;
    float* dz = c.out<float>(0) + n * size.classes;
    const std::int64_t label = labels[n];
    if (label == size.ignored || label < 0 || label >= size.classes) {
      std::fill_n(dz, size.classes, 0.0F);
      continue;
    }
    const float weight = weights == nullptr ? dloss : dloss * weights[n];
    const float everywhere = weight * size.smoothing / static_cast<float>(size.classes);
    GradientRow(z, size.classes, statistics[2 * n], weight / statistics[2 * n + 1], everywhere, dz);
    dz[label] -= weight * (1.0F - size.smoothing);
  }
  return Status::Ok();
}

}  // namespace

KernelResult MakeTokenCrossEntropyCpu(const KernelRequest& request) {
  const auto& function = static_cast<const TokenCrossEntropy&>(request.function);
  const Sizes size = MakeSizes(function.options(), request.inputs[0]);
  const bool has_weights = request.inputs.size() == 3;
  return MakeCall(request, [size, has_weights](const Call& c) {
    return Forward(size, c.in<float>(0), c.in<std::int32_t>(1),
                   has_weights ? c.in<float>(2) : nullptr, c);
  });
}

KernelResult MakeTokenCrossEntropyGradientCpu(const KernelRequest& request) {
  const auto& function = static_cast<const TokenCrossEntropyGradient&>(request.function);
  const Sizes size = MakeSizes(function.options(), request.inputs[0]);
  const bool has_weights = request.inputs.size() == 5;
  return MakeCall(request, [size, has_weights](const Call& c) {
    return Backward(size, has_weights ? c.in<float>(4) : nullptr, c);
  });
}

}  // namespace gaccd
