// Conv2d, as PyTorch's:  x [N, H, W, C], weight [O, C / groups, KH, KW], bias [O], y [N, OH, OW, O]
//   OH = floor((H + 2 padding - dilation (KH - 1) - 1) / stride) + 1, and likewise OW
//   y[n, p, q, o] = bias[o] + sum over c, i, j of weight[o, c, i, j]
//                   x[n, stride p - padding + dilation i, stride q - padding + dilation j, c']
// c' is channel c of the group of o: each of the `groups` groups reads C / groups channels and
// writes O / groups. Values outside of an image are 0. With dy = d objective / d y:
//   dx, by the transposed sum                        conv2d_input_gradient(dy, weight)
//   dweight[o, c, i, j] += sum over n, p, q of dy x  conv2d_weight_gradient(dy, x)
//   dbias[o] += sum over n, p, q of dy               bias_gradient(dy)
//
// Images are channels last in memory (channels_last.h), weights are as in PyTorch. x, y and their
// gradients are f32, bf16 or fp16, all of one type; weight, bias and their gradients are f32 in the
// graph, and types are as in linear.h: with LinearSums::kF32 x and dy are bf16, y and dx f32. A
// weight that is not a parameter is converted to the layout of the kernels in each run.
#pragma once

#include <cstdint>

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/product/linear.h"

namespace gaccd {

struct Conv2dOptions {
  ImagePair stride{1, 1};
  ImagePair padding{0, 0};
  ImagePair dilation{1, 1};
  std::int64_t groups = 1;
};

// Height and width. A weight [out, in / groups, width] has kernels of one row.
[[nodiscard]] inline ImagePair KernelSize(const Shape& weight) {
  return {weight.size() == 3 ? 1 : weight[2], weight.back()};
}

// Inputs: x, weight and, if there is a bias, bias.
class Conv2d : public Function {
 public:
  explicit Conv2d(const Conv2dOptions& options, LinearSums sums = LinearSums::kAsInput)
      : options_(options), sums_(sums) {}

  [[nodiscard]] std::string_view name() const override { return "conv2d"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] const Conv2dOptions& options() const { return options_; }

 private:
  Conv2dOptions options_;
  LinearSums sums_;
};

// Inputs: dy, weight. Output: dx, images of the size `image`.
class Conv2dInputGradient : public Function {
 public:
  Conv2dInputGradient(const Conv2dOptions& options, ImagePair image,
                      LinearSums sums = LinearSums::kAsInput)
      : options_(options), image_(image), sums_(sums) {}

  [[nodiscard]] std::string_view name() const override { return "conv2d_input_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] const Conv2dOptions& options() const { return options_; }
  [[nodiscard]] ImagePair image() const { return image_; }

 private:
  Conv2dOptions options_;
  ImagePair image_;
  LinearSums sums_;
};

// Inputs: dy, x. Output: dweight, of kernels of the size `kernel`.
class Conv2dWeightGradient : public Function {
 public:
  // of_row: kernels of one row, dweight [out, in / groups, width].
  Conv2dWeightGradient(const Conv2dOptions& options, ImagePair kernel, bool of_row = false)
      : options_(options), kernel_(kernel), of_row_(of_row) {}

  [[nodiscard]] std::string_view name() const override { return "conv2d_weight_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] double ProductFlops(std::span<const ValueSpec> inputs) const override;
  [[nodiscard]] bool can_accumulate(std::size_t) const override { return true; }

  [[nodiscard]] const Conv2dOptions& options() const { return options_; }

 private:
  Conv2dOptions options_;
  ImagePair kernel_;
  bool of_row_;
};

// As in PyTorch: x [N, H, W, C], weight [C, O / groups, KH, KW], y [N, OH, OW, O]
//   OH = (H - 1) stride - 2 padding + dilation (KH - 1) + output_padding + 1, and likewise OW
// It is conv2d's input gradient with this weight, and uses its kernels. Hence
//   dx = conv2d(dy, weight),  dweight = conv2d_weight_gradient(x, dy)
// Inputs: x, weight. Output: images of the size `image`, which must be [OH, OW] for some
// output_padding.
class ConvTranspose2d : public Conv2dInputGradient {
 public:
  using Conv2dInputGradient::Conv2dInputGradient;

  Status Gradient(GradientScope& scope) const override;
};

CpuMakeIn MakeConv2dCpu, MakeConv2dInputGradientCpu, MakeConv2dWeightGradientCpu;
CudaMake MakeConv2dCuda, MakeConv2dInputGradientCuda, MakeConv2dWeightGradientCuda;
inline constexpr FunctionRow kConv2dRows[] = {
    {"conv2d", AcceptsBf16(MakeConv2dCpu), MakeConv2dCuda},
    {"conv2d_input_gradient", AcceptsBf16(MakeConv2dInputGradientCpu), MakeConv2dInputGradientCuda},
    {"conv2d_weight_gradient", AcceptsBf16(MakeConv2dWeightGradientCpu),
     MakeConv2dWeightGradientCuda},
};

}  // namespace gaccd
