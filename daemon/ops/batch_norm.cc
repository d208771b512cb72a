#include "daemon/ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckChannels(const ValueSpec& x) {
  if (x.dtype == DType::kF32 && x.shape.size() >= 2 && x.shape.back() > 0) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the input: expected f32 [..., channels] with at least 1 channel, found ",
                 Name(x.dtype), " ", ToString(x.shape))};
}

ValueSpec SumsSpec(const ValueSpec& x) { return {{2 * x.shape.back() + 1}, DType::kF64}; }
ValueSpec GradientSumsSpec(const ValueSpec& x) { return {{2 * x.shape.back()}, DType::kF64}; }

Status CheckNormOperands(const ValueSpec& x, const ValueSpec& sums) {
  GACCD_RETURN_IF_ERROR(CheckChannels(x));
  return CheckShapeIs(sums, SumsSpec(x).shape, "the sums", DType::kF64);
}

}  // namespace

OutputSpecs ChannelSums::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckChannels(inputs[0]));
  return std::vector<ValueSpec>{SumsSpec(inputs[0])};
}

OutputSpecs FixedSums::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  const Shape& mean = inputs[0].shape;
  if (mean.size() != 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("the mean: expected a vector, found ", ToString(mean)));
  }
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], mean, "the variance"));
  return std::vector<ValueSpec>{{{2 * mean[0] + 1}, DType::kF64}};
}

OutputSpecs UpdateSum::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  if (inputs[0].dtype != DType::kF64 || inputs[0].shape.size() != 1) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected an f64 vector, found ", Name(inputs[0].dtype), " ",
                         ToString(inputs[0].shape)));
  }
  return std::vector<ValueSpec>{inputs[0]};
}

OutputSpecs MicroStatistics::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  const std::int64_t channels = (Elements(inputs[0].shape) - 1) / 2;
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], {2 * channels + 1}, "the sums", DType::kF64));
  const ValueSpec by_channel{{channels}, DType::kF32};
  return std::vector<ValueSpec>{by_channel, by_channel, {{}, DType::kF32}};
}

OutputSpecs BatchNorm::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 4));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckNormOperands(x, inputs[1]));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {x.shape.back()}, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], {x.shape.back()}, "beta"));
  return std::vector<ValueSpec>{x};
}

Status BatchNorm::Gradient(GradientScope& scope) const {
  Graph& graph = scope.graph();
  const ValueId dy = scope.OutputGradient(0);
  const ValueId x = scope.input(0);
  const ValueId sums = scope.input(1);
  const auto target = [&](std::size_t input) {
    return scope.NeedsGradient(input) ? std::optional(scope.input(input)) : std::nullopt;
  };
  GACCD_ASSIGN_OR_RETURN(
      const std::vector<ValueId> own,
      graph.ApplyToGradients(std::make_shared<BatchNormGradientSums>(eps_), {dy, x, sums},
                             {std::nullopt, target(2), target(3)}));
  if (!scope.NeedsGradient(0)) return Status::Ok();
  std::vector<ValueId> inputs = {dy, x, sums, scope.input(2)};
  if (group_ == NormGroup::kMicroBatch) inputs.push_back(own[0]);
  if (group_ == NormGroup::kUpdate) {
    GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> all,
                           graph.Apply(std::make_shared<UpdateSum>(), {own[0]}));
    inputs.push_back(all[0]);
  }
  return scope.SetInputGradient(0, std::make_shared<BatchNormInputGradient>(eps_),
                                std::move(inputs));
}

OutputSpecs BatchNormGradientSums::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 3));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckNormOperands(x, inputs[2]));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient"));
  const ValueSpec parameter{{x.shape.back()}, DType::kF32};
  return std::vector<ValueSpec>{GradientSumsSpec(x), parameter, parameter};
}

OutputSpecs BatchNormInputGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, inputs.size() > 4 ? 5 : 4));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckNormOperands(x, inputs[2]));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], {x.shape.back()}, "gamma"));
  if (inputs.size() > 4) {
    GACCD_RETURN_IF_ERROR(
        CheckShapeIs(inputs[4], GradientSumsSpec(x).shape, "the gradient sums", DType::kF64));
  }
  return std::vector<ValueSpec>{x};
}

double UnbiasedVariance(double sum, double squares, double n) {
  const double mean = sum / n;
  const double variance = std::max(squares / n - mean * mean, 0.0);
  return n > 1 ? variance * n / (n - 1) : variance;
}

namespace {

// Calls set(channel, mean, variance) with what AddToRunning() makes of them.
void ForEachNext(NormGroup group, std::span<const double> sums, double momentum,
                 const RunningStatistics& running, auto&& set) {
  const std::size_t channels = (sums.size() - 1) / 2;
  const double n = sums[2 * channels];
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = sums[c] / n;
    const double unbiased = group == NormGroup::kMicroBatch
                                ? sums[channels + c] / n
                                : UnbiasedVariance(sums[c], sums[channels + c], n);
    set(c, static_cast<float>((1 - momentum) * running.mean[c] + momentum * mean),
        static_cast<float>((1 - momentum) * running.variance[c] + momentum * unbiased));
  }
}

}  // namespace

void AddToRunning(NormGroup group, std::span<const double> sums, double momentum,
                  const RunningStatistics& running) {
  ForEachNext(group, sums, momentum, running, [&](std::size_t c, float mean, float variance) {
    running.mean[c] = mean;
    running.variance[c] = variance;
  });
  *running.updates += 1;
}

bool StaysFinite(NormGroup group, std::span<const double> sums, double momentum,
                 const RunningStatistics& running) {
  bool finite = true;
  ForEachNext(group, sums, momentum, running, [&](std::size_t, float mean, float variance) {
    finite = finite && std::isfinite(mean) && std::isfinite(variance);
  });
  return finite;
}

}  // namespace gaccd
