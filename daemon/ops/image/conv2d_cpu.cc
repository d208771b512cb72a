// Convolutions by oneDNN, or as oneDNN products of columns (device/cpu/im2col.h), of taps
// (device/cpu/tap_gradient.h) or after a Winograd transformation (device/cpu/winograd.h). Two cases
// do not call oneDNN's convolution directly: 0 images, whose results are empty or 0, and 1 x 1
// kernels with a stride, which first gather the values that they read. With f64 sums all are by
// F64Convolution.
#include <algorithm>
#include <cstring>
#include <utility>

#include "daemon/device/cpu/convolution.h"
#include "daemon/device/cpu/f64_convolution.h"
#include "daemon/device/cpu/im2col.h"
#include "daemon/device/cpu/tap_gradient.h"
#include "daemon/device/cpu/winograd.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cpu_kernels.h"
#include "daemon/ops/image/conv2d.h"

namespace gaccd {
namespace {

// Positions of the values that a 1 x 1 kernel without padding reads, one per result.
struct Grid {
  std::int64_t images = 0;
  ImagePair image{}, result{}, stride{};
  std::int64_t pixel_bytes = 0;  // of all channels

  [[nodiscard]] std::int64_t image_bytes() const {
    return images * image[0] * image[1] * pixel_bytes;
  }
  [[nodiscard]] std::int64_t result_bytes() const {
    return AlignedBytes(images * result[0] * result[1] * pixel_bytes);
  }
  // visit(byte of the pixel in the images, byte in the results)
  template <typename Visit>
  void ForPixels(const Visit& visit) const {
    std::int64_t to = 0;
    for (std::int64_t n = 0; n < images; ++n) {
      for (std::int64_t p = 0; p < result[0]; ++p) {
        for (std::int64_t q = 0; q < result[1]; ++q, to += pixel_bytes) {
          const std::int64_t row = n * image[0] + p * stride[0];
          visit((row * image[1] + q * stride[1]) * pixel_bytes, to);
        }
      }
    }
  }
  void Gather(const std::byte* images_at, std::byte* results) const {
    const auto bytes = static_cast<std::size_t>(pixel_bytes);
    ForPixels([=](std::int64_t from, std::int64_t to) {
      std::memcpy(results + to, images_at + from, bytes);
    });
  }
  // Values without a result become 0.
  void Scatter(const std::byte* results, std::byte* images_at) const {
    const auto bytes = static_cast<std::size_t>(pixel_bytes);
    std::memset(images_at, 0, static_cast<std::size_t>(image_bytes()));
    ForPixels([=](std::int64_t to, std::int64_t from) {
      std::memcpy(images_at + to, results + from, bytes);
    });
  }
};

// Prepared: Convolution, F64Convolution, or a class of those headers. Its first operand is x or dx:
// the node's operand, or the values gathered by a Grid at the start of the scratch.
template <typename Prepared>
class ConvolutionKernel : public Kernel {
 public:
  ConvolutionKernel(ConvolutionKind kind, Prepared convolution, bool bias, std::optional<Grid> grid)
      : kind_(kind), convolution_(std::move(convolution)), bias_(bias), grid_(grid) {}

  [[nodiscard]] std::int64_t scratch_bytes() const override {
    return gathered_bytes() + convolution_.scratch_bytes();
  }
  void Bind(const Operands& operands) override {
    const bool is_forward = kind_ == ConvolutionKind::kForward;
    const bool writes_x = kind_ == ConvolutionKind::kInputGradient;
    image_ = static_cast<std::byte*>(writes_x     ? operands.outputs[0]
                                     : is_forward ? operands.inputs[0]
                                                  : operands.inputs[1]);
    gathered_ = static_cast<std::byte*>(operands.scratch);
    const bool writes_weight = kind_ == ConvolutionKind::kWeightGradient;
    convolution_.Bind({.x = grid_ ? gathered_ : image_,
                       .y = is_forward ? operands.outputs[0] : operands.inputs[0],
                       .weight = writes_weight ? nullptr : operands.in<float>(1),
                       .bias = bias_ ? operands.in<float>(2) : nullptr,
                       .weight_gradient = writes_weight ? operands.out<float>(0) : nullptr,
                       .scratch = gathered_ + gathered_bytes()});
  }
  Status Run(OutputMask add) override {
    const bool writes_x = kind_ == ConvolutionKind::kInputGradient;
    if (grid_ && !writes_x) grid_->Gather(image_, gathered_);
    GACCD_RETURN_IF_ERROR(convolution_.Run(add[0]));
    if (grid_ && writes_x) grid_->Scatter(gathered_, image_);
    return Status::Ok();
  }

 private:
  [[nodiscard]] std::int64_t gathered_bytes() const { return grid_ ? grid_->result_bytes() : 0; }

  ConvolutionKind kind_;
  Prepared convolution_;
  bool bias_;
  std::optional<Grid> grid_;
  std::byte* image_ = nullptr;
  std::byte* gathered_ = nullptr;
};

ImagePair SizeOf(const Shape& images) { return {images[1], images[2]}; }

// A node without images: gradients are 0.
KernelResult MakeZeroGradient(const KernelRequest& request) {
  return MakeCall(request, [bytes = static_cast<std::size_t>(request.outputs[0].bytes())](
                               const CallKernel::Call& c) {
    if (bytes > 0 && !c.add[0]) std::memset(c.outputs[0], 0, bytes);
    return Status::Ok();
  });
}

template <typename Prepared>
KernelResult MakeKernel(ConvolutionKind kind, Result<Prepared> prepared, bool bias,
                        std::optional<Grid> grid = std::nullopt) {
  GACCD_ASSIGN_OR_RETURN(Prepared convolution, std::move(prepared));
  return std::unique_ptr<Kernel>(
      std::make_unique<ConvolutionKernel<Prepared>>(kind, std::move(convolution), bias, grid));
}

// The sizes for images x or dx, results y or dy, and the weight or its gradient.
KernelResult MakeConvolution(const KernelRequest& request, const CpuEnvironment& environment,
                             ConvolutionKind kind, const ValueSpec& x, const ValueSpec& y,
                             const Shape& weight, const Conv2dOptions& options) {
  if (x.shape[0] == 0) return MakeZeroGradient(request);
  ConvolutionSpec spec{.images = x.shape[0],
                       .in = x.shape[3],
                       .out = y.shape[3],
                       .groups = options.groups,
                       .image = SizeOf(x.shape),
                       .result = SizeOf(y.shape),
                       .kernel = KernelSize(weight),
                       .stride = options.stride,
                       .padding = options.padding,
                       .dilation = options.dilation,
                       .bias = request.inputs.size() == 3,
                       .bf16 = request.inputs[0].dtype == DType::kBF16};
  CpuContext& context = environment.context;
  if (context.f64_sums()) {
    return MakeKernel(kind, Result<F64Convolution>(F64Convolution(kind, spec)), spec.bias);
  }
  std::optional<Grid> grid;
  const bool is_point = spec.kernel == ImagePair{1, 1} && spec.padding == ImagePair{0, 0};
  if (is_point && spec.stride != ImagePair{1, 1}) {
    grid = Grid{.images = spec.images,
                .image = spec.image,
                .result = spec.result,
                .stride = spec.stride,
                .pixel_bytes = spec.in * static_cast<std::int64_t>(SizeOf(x.dtype))};
    spec.image = spec.result;
    spec.stride = {1, 1};
  }
  const float* const parameter =
      kind == ConvolutionKind::kWeightGradient ? nullptr : request.parameters[1];
  if (Im2colSuits(kind, spec)) {
    if (kind == ConvolutionKind::kWeightGradient) {
      if (TapGradientSuits(spec)) {
        return MakeKernel(kind, TapWeightGradient::Prepare(context, spec), spec.bias, grid);
      }
      return MakeKernel(kind, Im2colWeightGradient::Prepare(context, spec), spec.bias, grid);
    }
    return MakeKernel(kind, Im2colConvolution::Prepare(context, kind, spec, parameter), spec.bias,
                      grid);
  }
  if (!WinogradSuits(kind, spec)) {
    return MakeKernel(kind, Convolution::Prepare(context, kind, spec, parameter), spec.bias, grid);
  }
  if (kind == ConvolutionKind::kWeightGradient) {
    return MakeKernel(kind, WinogradWeightGradient::Prepare(context, spec), spec.bias);
  }
  return MakeKernel(kind, WinogradConvolution::Prepare(context, kind, spec, parameter), spec.bias);
}

}  // namespace

KernelResult MakeConv2dCpu(const KernelRequest& request, const CpuEnvironment& environment) {
  return MakeConvolution(request, environment, ConvolutionKind::kForward, request.inputs[0],
                         request.outputs[0], request.inputs[1].shape,
                         static_cast<const Conv2d&>(request.function).options());
}

KernelResult MakeConv2dInputGradientCpu(const KernelRequest& request,
                                        const CpuEnvironment& environment) {
  return MakeConvolution(request, environment, ConvolutionKind::kInputGradient, request.outputs[0],
                         request.inputs[0], request.inputs[1].shape,
                         static_cast<const Conv2dInputGradient&>(request.function).options());
}

KernelResult MakeConv2dWeightGradientCpu(const KernelRequest& request,
                                         const CpuEnvironment& environment) {
  return MakeConvolution(request, environment, ConvolutionKind::kWeightGradient, request.inputs[1],
                         request.inputs[0], request.outputs[0].shape,
                         static_cast<const Conv2dWeightGradient&>(request.function).options());
}

}  // namespace gaccd
