#include "daemon/ops/norm/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "collectives/base/strings.h"
#include "daemon/autograd/add.h"
#include "daemon/ops/fuse.h"
#include "daemon/ops/pointwise/activations.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckChannels(const ValueSpec& x) {
  if (IsFloat(x.dtype) && x.shape.size() >= 2 && x.shape.back() > 0) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the input: expected floats [..., channels] with at least 1 channel, found ",
                 Name(x.dtype), " ", ToString(x.shape))};
}

ValueSpec SumsSpec(const ValueSpec& x, const NormRuns& runs) {
  return {{runs.count * (2 * x.shape.back() + 1)}, DType::kF64};
}
ValueSpec GradientSumsSpec(const ValueSpec& x, const NormRuns& runs) {
  return {{runs.count * 2 * x.shape.back()}, DType::kF64};
}

// The inputs without the position, which is the last one with runs.
Result<std::span<const ValueSpec>> WithoutPosition(std::span<const ValueSpec> inputs,
                                                   const NormRuns& runs) {
  if (runs.size == 0) return inputs;
  if (inputs.empty()) return Status(ErrorKind::kInternal, "expected the position as an input");
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs.back(), {1}, "the position", DType::kI64));
  return inputs.first(inputs.size() - 1);
}

Status CheckNormOperands(const ValueSpec& x, const ValueSpec& sums, const NormRuns& runs) {
  GACCD_RETURN_IF_ERROR(CheckChannels(x));
  if (runs.size > 0 &&
      (runs.samples <= 0 || Elements(x.shape) / x.shape.back() % runs.samples != 0)) {
    return {ErrorKind::kInternal,
            StrCat("expected the rows of ", runs.samples, " samples, found ", ToString(x.shape))};
  }
  return CheckShapeIs(sums, SumsSpec(x, runs).shape, "the sums", DType::kF64);
}

}  // namespace

OutputSpecs ChannelSums::Infer(std::span<const ValueSpec> all) const {
  GACCD_ASSIGN_OR_RETURN(const auto inputs, WithoutPosition(all, runs_));
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  GACCD_RETURN_IF_ERROR(CheckNormOperands(inputs[0], SumsSpec(inputs[0], runs_), runs_));
  return std::vector<ValueSpec>{SumsSpec(inputs[0], runs_)};
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

OutputSpecs BatchNorm::Infer(std::span<const ValueSpec> all) const {
  GACCD_ASSIGN_OR_RETURN(const auto inputs, WithoutPosition(all, runs_));
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, end_.adds ? 5 : 4));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckNormOperands(x, inputs[1], runs_));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {x.shape.back()}, "gamma"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], {x.shape.back()}, "beta"));
  if (end_.adds) {
    GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[4], x.shape, "the residual", x.dtype));
  }
  return std::vector<ValueSpec>{{x.shape, end_.to_bf16 ? DType::kBF16 : x.dtype}};
}

Status BatchNorm::Gradient(GradientScope& scope) const {
  if (end_.adds || end_.relu) {
    return {ErrorKind::kInternal, "expected a batch norm alone, found one fused with what follows"};
  }
  Graph& graph = scope.graph();
  const ValueId dy = scope.OutputGradient(0);
  const ValueId x = scope.input(0);
  const ValueId sums = scope.input(1);
  const auto target = [&](std::size_t input) {
    return scope.NeedsGradient(input) ? std::optional(scope.input(input)) : std::nullopt;
  };
  const auto with_position = [&](std::vector<ValueId> inputs) {
    if (runs_.size > 0) inputs.push_back(scope.input(4));
    return inputs;
  };
  GACCD_ASSIGN_OR_RETURN(
      const std::vector<ValueId> own,
      graph.ApplyToGradients(std::make_shared<BatchNormGradientSums>(eps_, runs_),
                             with_position({dy, x, sums}), {std::nullopt, target(2), target(3)}));
  if (!scope.NeedsGradient(0)) return Status::Ok();
  std::vector<ValueId> inputs = {dy, x, sums, scope.input(2)};
  if (group_ == NormGroup::kMicroBatch) inputs.push_back(own[0]);
  if (group_ == NormGroup::kUpdate || group_ == NormGroup::kRuns) {
    GACCD_ASSIGN_OR_RETURN(const std::vector<ValueId> all,
                           graph.Apply(std::make_shared<UpdateSum>(), {own[0]}));
    inputs.push_back(all[0]);
  }
  return scope.SetInputGradient(0, std::make_shared<BatchNormInputGradient>(eps_, runs_),
                                with_position(std::move(inputs)));
}

OutputSpecs BatchNormGradientSums::Infer(std::span<const ValueSpec> all) const {
  GACCD_ASSIGN_OR_RETURN(const auto inputs, WithoutPosition(all, runs_));
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, relu_ ? 5 : 3));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckNormOperands(x, inputs[2], runs_));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient", x.dtype));
  const ValueSpec parameter{{x.shape.back()}, DType::kF32};
  if (relu_) {
    GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], parameter.shape, "gamma"));
    GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[4], parameter.shape, "beta"));
  }
  return std::vector<ValueSpec>{GradientSumsSpec(x, runs_), parameter, parameter};
}

OutputSpecs BatchNormInputGradient::Infer(std::span<const ValueSpec> all) const {
  GACCD_ASSIGN_OR_RETURN(const auto inputs, WithoutPosition(all, runs_));
  const std::size_t sums = gradient_sums(all.size());
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 4 + (relu_ ? 1 : 0) + (sums > 0 ? 1 : 0)));
  const ValueSpec& x = inputs[1];
  GACCD_RETURN_IF_ERROR(CheckNormOperands(x, inputs[2], runs_));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], x.shape, "the gradient", x.dtype));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[3], {x.shape.back()}, "gamma"));
  if (relu_) GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[4], {x.shape.back()}, "beta"));
  if (sums > 0) {
    GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[sums], GradientSumsSpec(x, runs_).shape,
                                       "the gradient sums", DType::kF64));
  }
  return std::vector<ValueSpec>{{x.shape, to_bf16_ ? DType::kBF16 : x.dtype}};
}

namespace {

// The batch norm without fused operations that computes `value` for `reader` only.
std::optional<std::size_t> FindBatchNorm(const Fuser& fuser, ValueId value, std::size_t reader) {
  if (!fuser.OnlyReadBy(value, reader)) return std::nullopt;
  return fuser.Find<BatchNorm>([&](const Node& node) {
    const NormEnd end = static_cast<const BatchNorm&>(*node.function).end();
    return node.outputs[0] == value && !end.relu && !end.adds;
  });
}

// At the position of the relu, where the residual is available.
void FuseWithRelu(Fuser& fuser, std::size_t norm, std::size_t relu,
                  const std::vector<ValueId>& residual) {
  Node fused = fuser.node(norm);
  fused.inputs.insert(fused.inputs.begin() + 4, residual.begin(), residual.end());
  fused.outputs = fuser.node(relu).outputs;
  fused.function =
      std::make_shared<BatchNorm>(static_cast<const BatchNorm&>(*fused.function)
                                      .With({.adds = !residual.empty(), .relu = true}));
  fuser.Erase(norm);
  fuser.Replace(relu, std::move(fused));
}

void FuseRelu(Fuser& fuser, std::size_t relu) {
  const ValueId sum = fuser.node(relu).inputs[0];
  if (const auto norm = FindBatchNorm(fuser, sum, relu))
    return FuseWithRelu(fuser, *norm, relu, {});
  if (!fuser.OnlyReadBy(sum, relu)) return;
  const auto add = fuser.Find<Add>([&](const Node& node) { return node.outputs[0] == sum; });
  if (!add) return;
  const std::vector<ValueId> parts = fuser.node(*add).inputs;
  for (const std::size_t i : {0, 1}) {
    const auto norm = FindBatchNorm(fuser, parts[i], *add);
    if (!norm || parts[0] == parts[1]) continue;
    FuseWithRelu(fuser, *norm, relu, {parts[1 - i]});
    fuser.Erase(*add);
    return;
  }
}

// The dy of the relu gradient becomes the dy of the gradients of the fused batch norm.
void FuseReluGradient(Fuser& fuser, std::size_t relu) {
  const Node gradient = fuser.node(relu);
  const auto norm = fuser.Find<BatchNorm>([&](const Node& node) {
    const NormEnd end = static_cast<const BatchNorm&>(*node.function).end();
    return node.outputs[0] == gradient.inputs[1] && end.relu && !end.adds;
  });
  const ValueId dx = gradient.outputs[0];
  if (!norm || !fuser.IsActivation(dx) || gradient.inputs.size() > 2) return;
  const ValueId x = fuser.node(*norm).inputs[0];
  const ValueId gamma = fuser.node(*norm).inputs[2];
  const ValueId beta = fuser.node(*norm).inputs[3];
  const std::vector<std::size_t> readers = fuser.FindReaders(dx);
  for (const std::size_t i : readers) {
    const bool is_gradient =
        fuser.Is<BatchNormGradientSums>(i) || fuser.Is<BatchNormInputGradient>(i);
    if (!is_gradient || fuser.node(i).inputs[1] != x) return;
  }
  for (const std::size_t i : readers) {
    Node fused = fuser.node(i);
    fused.inputs[0] = gradient.inputs[0];
    if (const auto* sums = dynamic_cast<const BatchNormGradientSums*>(fused.function.get())) {
      fused.inputs.insert(fused.inputs.begin() + 3, {gamma, beta});
      fused.function = std::make_shared<BatchNormGradientSums>(sums->eps(), sums->runs(), true);
    } else {
      const auto& input = static_cast<const BatchNormInputGradient&>(*fused.function);
      fused.inputs.insert(fused.inputs.begin() + 4, beta);
      fused.function = std::make_shared<BatchNormInputGradient>(input.eps(), input.runs(), true);
    }
    fuser.Replace(i, std::move(fused));
  }
  fuser.Erase(relu);
}

}  // namespace

void FuseBatchNorms(Fuser& fuser) {
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (fuser.Is<Relu>(i)) FuseRelu(fuser, i);
  }
  for (std::size_t i = 0; i < fuser.size(); ++i) {
    if (fuser.Is<ReluGradient>(i)) FuseReluGradient(fuser, i);
  }
}

namespace {

// Calls set(channel, mean, variance) with the values that AddToRunning() will store.
void ForEachNext(NormGroup group, std::span<const double> sums, double momentum,
                 const RunningStatistics& running, auto&& set) {
  const std::size_t channels = (sums.size() - 1) / 2;
  const double n = sums[2 * channels];
  for (std::size_t c = 0; c < channels; ++c) {
    const double mean = sums[c] / n;
    const double unbiased = group == NormGroup::kUpdate
                                ? UnbiasedVariance(sums[c], sums[channels + c], n)
                                : sums[channels + c] / n;
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

void AddRuns(std::span<const double> runs, std::span<double> total) {
  const std::size_t width = total.size();
  const std::size_t channels = (width - 1) / 2;
  std::ranges::fill(total, 0.0);
  for (std::size_t at = 0; at + width <= runs.size(); at += width) {
    const std::span<const double> sums = runs.subspan(at, width);
    const double n = sums[2 * channels];
    if (n == 0) continue;  // a smaller update has fewer runs
    for (std::size_t c = 0; c < channels; ++c) {
      total[c] += sums[c];
      total[channels + c] += n * UnbiasedVariance(sums[c], sums[channels + c], n);
    }
    total[2 * channels] += n;
  }
}

}  // namespace gaccd
