#include "daemon/ops/image/conv2d.h"

#include <algorithm>

#include "collectives/base/strings.h"
#include "daemon/ops/shape_checks.h"

namespace gaccd {
namespace {

Status CheckOptions(const Conv2dOptions& options) {
  const auto [stride, padding, dilation, groups] = options;
  if (std::ranges::min(stride) >= 1 && std::ranges::min(dilation) >= 1 &&
      std::ranges::min(padding) >= 0 && groups >= 1) {
    return Status::Ok();
  }
  return {ErrorKind::kConfig,
          StrCat("expected stride, dilation and groups of at least 1 and a padding of at least 0, ",
                 "found stride ", stride[0], " x ", stride[1], ", dilation ", dilation[0], " x ",
                 dilation[1], ", groups ", groups, ", padding ", padding[0], " x ", padding[1])};
}

// OH and OW.
Result<ImagePair> ResultSize(const Conv2dOptions& options, ImagePair image, ImagePair kernel) {
  ImagePair result{};
  for (const std::size_t i : {0, 1}) {
    const std::int64_t padded = image[i] + 2 * options.padding[i];
    const std::int64_t covered = options.dilation[i] * (kernel[i] - 1) + 1;
    if (covered > padded) {
      return Status(ErrorKind::kConfig,
                    StrCat("a kernel of ", kernel[0], " x ", kernel[1], " with dilation ",
                           options.dilation[0], " x ", options.dilation[1],
                           ": expected to cover at most ", padded, i == 0 ? " rows" : " columns",
                           " of an image of ", image[0], " x ", image[1], " with padding ",
                           options.padding[0], " x ", options.padding[1], ", found ", covered));
    }
    result[i] = (padded - covered) / options.stride[i] + 1;
  }
  return result;
}

ImagePair ImageSize(const Shape& images) { return {images[1], images[2]}; }

// Multiplications and additions for every value of y.
double Flops(const Shape& y, std::int64_t in_of_group, ImagePair kernel) {
  return 2.0 * static_cast<double>(Elements(y) * in_of_group) *
         static_cast<double>(kernel[0] * kernel[1]);
}

Status CheckWeight(const ValueSpec& weight, const Conv2dOptions& options) {
  const Shape& shape = weight.shape;
  const bool is_kernel = weight.dtype == DType::kF32 && (shape.size() == 4 || shape.size() == 3) &&
                         *std::ranges::min_element(shape) >= 1;
  if (is_kernel && shape[0] % options.groups == 0) return Status::Ok();
  return {ErrorKind::kConfig,
          StrCat("the weight: expected f32 [out, in / groups, kernel height, kernel width], ",
                 options.groups, " groups dividing out, found ", Name(weight.dtype), " ",
                 ToString(shape))};
}

DType SumsType(LinearSums sums, const ValueSpec& input) {
  return sums == LinearSums::kF32 ? DType::kF32 : input.dtype;
}

}  // namespace

OutputSpecs Conv2d::Infer(std::span<const ValueSpec> inputs) const {
  if (inputs.size() != 2 && inputs.size() != 3) {
    return Status(ErrorKind::kConfig, StrCat("expected 2 or 3 inputs, found ", inputs.size()));
  }
  GACCD_RETURN_IF_ERROR(CheckOptions(options_));
  GACCD_RETURN_IF_ERROR(CheckImages(inputs[0], "the input"));
  GACCD_RETURN_IF_ERROR(CheckWeight(inputs[1], options_));
  const Shape& x = inputs[0].shape;
  const Shape& weight = inputs[1].shape;
  if (x[3] != weight[1] * options_.groups) {
    return Status(ErrorKind::kConfig,
                  StrCat("the weight ", ToString(weight), " with ", options_.groups,
                         " groups expects images of ", weight[1] * options_.groups,
                         " channels, found ", x[3]));
  }
  if (inputs.size() == 3) GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[2], {weight[0]}, "the bias"));
  GACCD_ASSIGN_OR_RETURN(const ImagePair size,
                         ResultSize(options_, ImageSize(x), KernelSize(weight)));
  return std::vector<ValueSpec>{{{x[0], size[0], size[1], weight[0]}, SumsType(sums_, inputs[0])}};
}

double Conv2d::ProductFlops(std::span<const ValueSpec> inputs) const {
  const Shape& weight = inputs[1].shape;
  const OutputSpecs y = Infer(inputs);
  return y.ok() ? Flops((*y)[0].shape, weight[1], KernelSize(weight)) : 0;
}

Status Conv2d::Gradient(GradientScope& scope) const {
  const ValueId dy = scope.OutputGradient(0);
  const Shape weight = scope.input_shape(1);
  const ImagePair kernel = KernelSize(weight);
  if (scope.NeedsGradient(0)) {
    const ImagePair image = ImageSize(scope.input_shape(0));
    GACCD_RETURN_IF_ERROR(scope.SetInputGradient(
        0, std::make_shared<Conv2dInputGradient>(options_, image), {dy, scope.input(1)}));
  }
  GACCD_RETURN_IF_ERROR(scope.SetInputGradient(
      1, std::make_shared<Conv2dWeightGradient>(options_, kernel, weight.size() == 3),
      {dy, scope.input(0)}));
  if (scope.inputs() == 2) return Status::Ok();
  return scope.SetInputGradient(2, std::make_shared<BiasGradient>(), {dy});
}

OutputSpecs Conv2dInputGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckOptions(options_));
  GACCD_RETURN_IF_ERROR(CheckImages(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckWeight(inputs[1], options_));
  const Shape& dy = inputs[0].shape;
  const Shape& weight = inputs[1].shape;
  GACCD_ASSIGN_OR_RETURN(const ImagePair size, ResultSize(options_, image_, KernelSize(weight)));
  GACCD_RETURN_IF_ERROR(CheckShapeIs(inputs[0], {dy[0], size[0], size[1], weight[0]},
                                     "the gradient", inputs[0].dtype));
  return std::vector<ValueSpec>{
      {{dy[0], image_[0], image_[1], weight[1] * options_.groups}, SumsType(sums_, inputs[0])}};
}

double Conv2dInputGradient::ProductFlops(std::span<const ValueSpec> inputs) const {
  const Shape& weight = inputs[1].shape;
  return Flops(inputs[0].shape, weight[1], KernelSize(weight));
}

OutputSpecs Conv2dWeightGradient::Infer(std::span<const ValueSpec> inputs) const {
  GACCD_RETURN_IF_ERROR(CheckCount(inputs, 2));
  GACCD_RETURN_IF_ERROR(CheckOptions(options_));
  GACCD_RETURN_IF_ERROR(CheckImages(inputs[0], "the gradient"));
  GACCD_RETURN_IF_ERROR(CheckImages(inputs[1], "the input"));
  const Shape& dy = inputs[0].shape;
  const Shape& x = inputs[1].shape;
  GACCD_ASSIGN_OR_RETURN(const ImagePair size, ResultSize(options_, ImageSize(x), kernel_));
  GACCD_RETURN_IF_ERROR(
      CheckShapeIs(inputs[0], {x[0], size[0], size[1], dy[3]}, "the gradient", inputs[1].dtype));
  if (x[3] % options_.groups != 0 || dy[3] % options_.groups != 0) {
    return Status(ErrorKind::kConfig,
                  StrCat("expected channels that ", options_.groups, " groups divide, found ",
                         ToString(x), " and ", ToString(dy)));
  }
  Shape weight = {dy[3], x[3] / options_.groups, kernel_[0], kernel_[1]};
  if (of_row_) weight.erase(weight.begin() + 2);
  return std::vector<ValueSpec>{{weight, DType::kF32}};
}

double Conv2dWeightGradient::ProductFlops(std::span<const ValueSpec> inputs) const {
  return Flops(inputs[0].shape, inputs[1].shape[3] / options_.groups, kernel_);
}

Status ConvTranspose2d::Gradient(GradientScope& scope) const {
  const ValueId dy = scope.OutputGradient(0);
  const Shape weight = scope.input_shape(1);
  if (scope.NeedsGradient(0)) {
    GACCD_RETURN_IF_ERROR(
        scope.SetInputGradient(0, std::make_shared<Conv2d>(options()), {dy, scope.input(1)}));
  }
  return scope.SetInputGradient(
      1, std::make_shared<Conv2dWeightGradient>(options(), KernelSize(weight), weight.size() == 3),
      {scope.input(0), dy});
}

}  // namespace gaccd
