#include "daemon/ops/image/pool2d.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

struct Windowing {
  ImagePair kernel, stride, padding, dilation;
};

PoolAxis MakeAxis(const Windowing& w, std::size_t i, std::int64_t in, bool counts_padding) {
  const std::int64_t covered = w.dilation[i] * (w.kernel[i] - 1) + 1;
  return {.in = in,
          .out = (in + 2 * w.padding[i] - covered) / w.stride[i] + 1,
          .kernel = w.kernel[i],
          .stride = w.stride[i],
          .padding = w.padding[i],
          .dilation = w.dilation[i],
          .counts_padding = counts_padding};
}

// Whether a window along dimension i contains only padding, which is possible if dilation steps
// over a small image.
bool IsAllPadding(const Windowing& w, std::size_t i, std::int64_t in) {
  const PoolAxis axis = MakeAxis(w, i, in, false);
  for (std::int64_t o = 0; o < axis.out; ++o) {
    if (axis.Begin(o) >= axis.End(o)) return true;
  }
  return false;
}

Status CheckWindowing(const Windowing& w, const ValueSpec& x) {
  GACCD_RETURN_IF_ERROR(CheckImages(x, "the input"));
  for (const std::size_t i : {0, 1}) {
    if (w.kernel[i] < 1 || w.stride[i] < 1 || w.dilation[i] < 1 || w.padding[i] < 0 ||
        2 * w.padding[i] > w.kernel[i]) {
      return {ErrorKind::kConfig,
              StrCat("expected a kernel, a stride and a dilation of at least 1 and a padding of at "
                     "most half of the kernel, found kernel ",
                     w.kernel[i], ", stride ", w.stride[i], ", dilation ", w.dilation[i],
                     ", padding ", w.padding[i])};
    }
    const std::int64_t padded = x.shape[1 + i] + 2 * w.padding[i];
    const std::int64_t covered = w.dilation[i] * (w.kernel[i] - 1) + 1;
    if (covered > padded) {
      return {ErrorKind::kConfig,
              StrCat("a window of ", w.kernel[0], " x ", w.kernel[1],
                     ": expected to cover at most ", padded, i == 0 ? " rows" : " columns",
                     " of an image of ", x.shape[1], " x ", x.shape[2], " with padding ",
                     w.padding[0], " x ", w.padding[1], ", found ", covered)};
    }
    if (IsAllPadding(w, i, x.shape[1 + i])) {
      return {ErrorKind::kConfig, StrCat("a window of ", w.kernel[0], " x ", w.kernel[1],
                                         " with dilation ", w.dilation[0], " x ", w.dilation[1],
                                         ": expected a value of the image in every"
                                         " window, found one in padding alone, along ",
                                         x.shape[1 + i], i == 0 ? " rows" : " columns",
                                         " with padding ", w.padding[i])};
    }
  }
  return Status::Ok();
}

PoolWindows MakeWindows(const Windowing& w, const Shape& x, bool counts_padding) {
  return {MakeAxis(w, 0, x[1], counts_padding), MakeAxis(w, 1, x[2], counts_padding)};
}

Windowing ToWindowing(const MaxPool2dOptions& o) {
  return {o.kernel, o.stride, o.padding, o.dilation};
}
Windowing ToWindowing(const AvgPool2dOptions& o) { return {o.kernel, o.stride, o.padding, {1, 1}}; }

Shape PooledShape(const PoolWindows& windows, const Shape& x) {
  return {x[0], windows.rows.out, windows.columns.out, x[3]};
}

// Spec of dx for dy.
OutputSpecs InferGradient(const PoolWindows& windows, const ValueSpec& dy) {
  GACCD_RETURN_IF_ERROR(CheckImages(dy, "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(dy, PooledShape(windows, dy.shape), "the gradient", dy.dtype));
  return std::vector<ValueSpec>{
      {{dy.shape[0], windows.rows.in, windows.columns.in, dy.shape[3]}, dy.dtype}};
}

}  // namespace

PoolWindows MaxPool2d::windows(const Shape& x) const {
  return MakeWindows(ToWindowing(options_), x, false);
}

OutputSpecs MaxPool2d::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckWindowing(ToWindowing(options_), x));
  const Shape shape = PooledShape(windows(x.shape), x.shape);
  return std::vector<ValueSpec>{{shape, x.dtype}, {shape, DType::kI32}};
}

Status MaxPool2d::Gradient(GradientScope& scope) const {
  if (scope.HasOutputGradient(1)) {
    return {ErrorKind::kConfig, "max_pool2d: the pixels have no gradient"};
  }
  return scope.SetInputGradient(0,
                                std::make_shared<MaxPool2dGradient>(windows(scope.input_shape(0))),
                                {scope.OutputGradient(0), scope.output(1)});
}

OutputSpecs MaxPool2dGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[1], inputs[0].shape, "the pixels", DType::kI32));
  return InferGradient(windows_, inputs[0]);
}

PoolWindows AvgPool2d::windows(const Shape& x) const {
  return MakeWindows(ToWindowing(options_), x, options_.count_include_pad);
}

OutputSpecs AvgPool2d::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckWindowing(ToWindowing(options_), x));
  return std::vector<ValueSpec>{{PooledShape(windows(x.shape), x.shape), x.dtype}};
}

Status AvgPool2d::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0,
                                std::make_shared<AvgPool2dGradient>(windows(scope.input_shape(0))),
                                {scope.OutputGradient(0)});
}

PoolWindows AdaptiveAvgPool2d::windows(const Shape& x) const {
  return {{.in = x[1], .out = output_[0], .adaptive = true},
          {.in = x[2], .out = output_[1], .adaptive = true}};
}

OutputSpecs AdaptiveAvgPool2d::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  const ValueSpec& x = inputs[0];
  GACCD_RETURN_IF_ERROR(CheckImages(x, "the input"));
  if (std::ranges::min(output_) < 1) {
    return Status(ErrorKind::kConfig, StrCat("expected an output of at least 1 x 1, found ",
                                             output_[0], " x ", output_[1]));
  }
  return std::vector<ValueSpec>{{PooledShape(windows(x.shape), x.shape), x.dtype}};
}

Status AdaptiveAvgPool2d::Gradient(GradientScope& scope) const {
  return scope.SetInputGradient(0,
                                std::make_shared<AvgPool2dGradient>(windows(scope.input_shape(0))),
                                {scope.OutputGradient(0)});
}

OutputSpecs AvgPool2dGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 1));
  return InferGradient(windows_, inputs[0]);
}

}  // namespace gaccd
