// Pooling of images, as in PyTorch:  x [N, H, W, C], channels last, y [N, OH, OW, C]
//   max_pool2d           y = max over a window;  dx += dy at the position of the maximum
//   avg_pool2d           y = sum over a window / d;  dx += dy / d
//   adaptive_avg_pool2d  the same, with OH x OW windows that cover the image
// Windows, for rows and columns alike (PoolAxis): those of the first two begin at stride o -
// padding and have `kernel` values `dilation` apart (avg_pool2d: 1); OH = floor((H + 2 padding -
// dilation (kernel - 1) - 1) / stride) + 1, PyTorch's ceil_mode=False. The last has the rows
// [floor(o H / OH), ceil((o + 1) H / OH)). Padding is ignored by the maximum, and adds 0 to a sum.
// With `count_include_pad`, PyTorch's default, d counts padding, otherwise only values of the
// image. A NaN is a maximum; of equal maxima the first counts, of NaNs the last. x, y and their
// gradients are f32, bf16 or fp16, on the CPU f32.
#pragma once

#include "daemon/autograd/function.h"
#include "daemon/ops/function_row.h"
#include "daemon/ops/image/pool_axis.h"

namespace gaccd {

struct MaxPool2dOptions {
  ImagePair kernel{1, 1};
  ImagePair stride{1, 1};
  ImagePair padding{0, 0};  // at most half of the kernel
  ImagePair dilation{1, 1};
};

// Input: x. Outputs: y; i32 of the same shape: the pixel h W + w of each maximum in its image. Only
// y has a gradient.
class MaxPool2d : public Function {
 public:
  explicit MaxPool2d(const MaxPool2dOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "max_pool2d"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] PoolWindows windows(const Shape& x) const;

 private:
  MaxPool2dOptions options_;
};

// Inputs: dy, the pixels. Output: dx, with images of this size.
class MaxPool2dGradient : public Function {
 public:
  explicit MaxPool2dGradient(const PoolWindows& windows) : windows_(windows) {}

  [[nodiscard]] std::string_view name() const override { return "max_pool2d_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] const PoolWindows& windows() const { return windows_; }

 private:
  PoolWindows windows_;
};

struct AvgPool2dOptions {
  ImagePair kernel{1, 1};
  ImagePair stride{1, 1};
  ImagePair padding{0, 0};  // at most half of the kernel
  bool count_include_pad = true;
};

class AvgPool2d : public Function {
 public:
  explicit AvgPool2d(const AvgPool2dOptions& options) : options_(options) {}

  [[nodiscard]] std::string_view name() const override { return "avg_pool2d"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] PoolWindows windows(const Shape& x) const;

 private:
  AvgPool2dOptions options_;
};

class AdaptiveAvgPool2d : public Function {
 public:
  explicit AdaptiveAvgPool2d(ImagePair output) : output_(output) {}

  [[nodiscard]] std::string_view name() const override { return "adaptive_avg_pool2d"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;
  Status Gradient(GradientScope& scope) const override;

  [[nodiscard]] PoolWindows windows(const Shape& x) const;

 private:
  ImagePair output_;
};

// For both averages. Input: dy. Output: dx.
class AvgPool2dGradient : public Function {
 public:
  explicit AvgPool2dGradient(const PoolWindows& windows) : windows_(windows) {}

  [[nodiscard]] std::string_view name() const override { return "avg_pool2d_gradient"; }
  [[nodiscard]] OutputSpecs Infer(std::span<const ValueSpec> inputs) const override;

  [[nodiscard]] const PoolWindows& windows() const { return windows_; }

 private:
  PoolWindows windows_;
};

CpuMake MakeMaxPool2dCpu, MakeMaxPool2dGradientCpu, MakeAvgPool2dCpu, MakeAdaptiveAvgPool2dCpu,
    MakeAvgPool2dGradientCpu;
CudaMake MakeMaxPool2dCuda, MakeMaxPool2dGradientCuda, MakeAvgPool2dCuda, MakeAdaptiveAvgPool2dCuda,
    MakeAvgPool2dGradientCuda;
inline constexpr FunctionRow kPool2dRows[] = {
    {"max_pool2d", MakeMaxPool2dCpu, MakeMaxPool2dCuda},
    {"max_pool2d_gradient", MakeMaxPool2dGradientCpu, MakeMaxPool2dGradientCuda},
    {"avg_pool2d", MakeAvgPool2dCpu, MakeAvgPool2dCuda},
    {"adaptive_avg_pool2d", MakeAdaptiveAvgPool2dCpu, MakeAdaptiveAvgPool2dCuda},
    {"avg_pool2d_gradient", MakeAvgPool2dGradientCpu, MakeAvgPool2dGradientCuda},
};

}  // namespace gaccd
