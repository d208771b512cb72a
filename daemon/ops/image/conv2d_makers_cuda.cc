// Makers of the convolution kernels on a GPU. 16-bit convolutions use cuDNN if it is available and
// supports the sizes, except the weight gradient of depthwise convolutions, which always uses
// gaccd's kernel. Other convolutions with one group are im2col in scratch memory and a cuBLASLt
// product; with several groups they use gaccd's direct kernels.
#include <memory>
#include <utility>

#include "collectives/base/strings.h"
#include "daemon/device/cuda/dnn_library.h"
#include "daemon/device/cuda/matmul_cuda.h"
#include "daemon/ops/image/conv2d_cuda.h"
#include "daemon/ops/image/conv2d_size.h"
#include "daemon/ops/product/linear_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;
using MatmulPointer = std::shared_ptr<MatmulCuda>;
using PlanPointer = std::shared_ptr<ConvPlan>;
constexpr auto kBackward = MatmulCuda::Pass::kBackward;

Result<MatmulPointer> Prepare(const CudaRequest& request, const MatmulCudaSpec& spec,
                              MatmulCuda::Pass pass = MatmulCuda::Pass::kForward) {
  GACCD_ASSIGN_OR_RETURN(auto matmul, MatmulCuda::Prepare(request.context, spec, pass));
  return MatmulPointer(std::move(matmul));
}

// Parts of scratch memory, each aligned as the libraries require.
class ScratchParts {
 public:
  // Adds a part of this many bytes; returns its offset.
  std::size_t Add(std::int64_t bytes) {
    constexpr std::size_t kAlignment = 256;
    const std::size_t place = (bytes_ + kAlignment - 1) / kAlignment * kAlignment;
    if (bytes > 0) bytes_ = place + static_cast<std::size_t>(bytes);
    return place;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_ = 0;
};

std::byte* At(void* scratch, std::size_t place) { return static_cast<std::byte*>(scratch) + place; }

// The weight, input 1, in the type of input 0: for a parameter the 16-bit copy of the context; a
// computed weight is cast into a part of the scratch.
class CastWeight {
 public:
  CastWeight(const CudaRequest& request, ScratchParts& parts)
      : on_(request.on),
        context_(&request.context),
        dtype_(request.dtype()),
        elements_(Elements(request.inputs[1].shape)),
        casts_(request.parameters[1] == nullptr && dtype_ != DType::kF32),
        place_(parts.Add(casts_ ? elements_ * static_cast<std::int64_t>(SizeOf(dtype_)) : 0)) {}

  [[nodiscard]] Result<const void*> Get(const Call& c) const {
    if (!casts_) return ParameterAs(*context_, c.inputs[1], dtype_);
    void* const to = At(c.scratch, place_);
    GACCD_RETURN_IF_ERROR(EnqueueCast(on_, DType::kF32, c.inputs[1], dtype_, to, elements_));
    return to;
  }

 private:
  KernelStream on_;
  const CudaContext* context_;
  DType dtype_;
  std::int64_t elements_;
  bool casts_;
  std::size_t place_;
};

// y = im2col(x) W^T + bias.
KernelResult MakeProduct(const CudaRequest& request, const ConvSize& size) {
  const DType dtype = request.dtype();
  GACCD_ASSIGN_OR_RETURN(const MatmulPointer matmul, Prepare(request, {.m = size.results(),
                                                                       .n = size.out,
                                                                       .k = size.columns(),
                                                                       .transpose_b = true,
                                                                       .ab = dtype,
                                                                       .c = dtype}));
  ScratchParts parts;
  parts.Add(static_cast<std::int64_t>(ConvColumnBytes(size, dtype)));
  const CastWeight weight(request, parts);
  return MakeCall(
      request,
      [=, on = request.on, &context = request.context](const Call& c) -> Status {
        const void* columns = c.inputs[0];
        if (!size.is_product()) {
          GACCD_RETURN_IF_ERROR(EnqueueIm2col(on, dtype, size, c.inputs[0], c.scratch));
          columns = c.scratch;
        }
        GACCD_ASSIGN_OR_RETURN(const void* w, weight.Get(c));
        GACCD_RETURN_IF_ERROR(matmul->Bind(columns, w, nullptr, c.outputs[0], nullptr));
        GACCD_RETURN_IF_ERROR(matmul->Run());
        GACCD_ASSIGN_OR_RETURN(const void* b, ParameterAs(context, c.optional_in<void>(2), dtype));
        if (b == nullptr) return Status::Ok();
        return EnqueueAddBias(on, dtype, b, c.outputs[0], {size.results(), size.out}, false);
      },
      parts.bytes());
}

// dx = col2im(dy W). The columns are f32, so that dx is rounded once.
KernelResult MakeInputProduct(const CudaRequest& request, const ConvSize& size) {
  const DType dtype = request.dtype();
  const DType of_columns = size.is_product() ? dtype : DType::kF32;
  GACCD_ASSIGN_OR_RETURN(
      const MatmulPointer matmul,
      Prepare(
          request,
          {.m = size.results(), .n = size.columns(), .k = size.out, .ab = dtype, .c = of_columns},
          kBackward));
  ScratchParts parts;
  parts.Add(static_cast<std::int64_t>(ConvColumnBytes(size, of_columns)));
  const CastWeight weight(request, parts);
  return MakeCall(
      request,
      [=, on = request.on](const Call& c) -> Status {
        GACCD_ASSIGN_OR_RETURN(const void* w, weight.Get(c));
        void* const columns = size.is_product() ? c.outputs[0] : c.scratch;
        GACCD_RETURN_IF_ERROR(matmul->Bind(c.inputs[0], w, nullptr, columns, nullptr));
        GACCD_RETURN_IF_ERROR(matmul->Run());
        if (size.is_product()) return Status::Ok();
        return EnqueueCol2im(on, dtype, size, static_cast<const float*>(c.scratch), c.outputs[0]);
      },
      parts.bytes());
}

// dW = or += dy^T im2col(x): two prepared products, one of which adds.
KernelResult MakeWeightProduct(const CudaRequest& request, const ConvSize& size) {
  const DType dtype = request.dtype();
  MatmulCudaSpec spec{.m = size.out,
                      .n = size.columns(),
                      .k = size.results(),
                      .transpose_a = true,
                      .ab = dtype,
                      .c = DType::kF32};
  GACCD_ASSIGN_OR_RETURN(const MatmulPointer overwrite, Prepare(request, spec, kBackward));
  spec.accumulate = true;
  GACCD_ASSIGN_OR_RETURN(const MatmulPointer add, Prepare(request, spec, kBackward));
  return MakeCall(
      request,
      [=, on = request.on](const Call& c) -> Status {
        const void* columns = c.inputs[1];
        if (!size.is_product()) {
          GACCD_RETURN_IF_ERROR(EnqueueIm2col(on, dtype, size, c.inputs[1], c.scratch));
          columns = c.scratch;
        }
        MatmulCuda& matmul = c.add[0] ? *add : *overwrite;
        GACCD_RETURN_IF_ERROR(matmul.Bind(c.inputs[0], columns, nullptr, c.outputs[0], nullptr));
        return matmul.Run();
      },
      ConvColumnBytes(size, dtype));
}

// The plan of cuDNN; null if gaccd's kernels must be used, with a warning if cuDNN is loaded.
Result<PlanPointer> PlanFor(const CudaRequest& request, const ConvSize& size, ConvPass pass) {
  const DType dtype = request.dtype();
  if (dtype == DType::kF32 || size.images == 0) return PlanPointer();
  const auto other_way = [&](const Status& why) -> Result<PlanPointer> {
    if (why.kind() != ErrorKind::kUnavailable) return why;
    request.context.AddWarning(StrCat(kOwnConvolution, why.message()));
    return PlanPointer();
  };
  const Result<DnnLibrary*> library = request.context.dnn();
  if (!library.ok()) return other_way(library.status());
  if (*library == nullptr) return PlanPointer();
  auto plan =
      (*library)->Prepare(ConvSpec{.dtype = dtype,
                                   .pass = pass,
                                   .deterministic = request.context.numerics().deterministic,
                                   .size = size});
  return plan.ok() ? Result<PlanPointer>(*std::move(plan)) : other_way(plan.status());
}

// y = conv(x, weight) + bias, or dx from dy without a bias. Scratch: the workspace of the plan, the
// weight as channels last, and the cast of a computed weight.
KernelResult MakeWithWeight(const CudaRequest& request, const ConvSize& size,
                            const PlanPointer& plan) {
  const DType dtype = request.dtype();
  const bool turned = size.area() > 1;
  ScratchParts parts;
  parts.Add(plan->workspace_bytes());
  const std::size_t last_at =
      parts.Add(turned ? size.out * size.columns() * static_cast<std::int64_t>(SizeOf(dtype)) : 0);
  const CastWeight weight(request, parts);
  return MakeCall(
      request,
      [=, on = request.on, &context = request.context](const Call& c) -> Status {
        GACCD_ASSIGN_OR_RETURN(const void* w, weight.Get(c));
        if (turned) {
          std::byte* const last = At(c.scratch, last_at);
          GACCD_RETURN_IF_ERROR(EnqueueChannelsLastWeight(on, dtype, size, w, last));
          w = last;
        }
        plan->Bind({c.inputs[0], w, c.outputs[0]}, c.scratch);
        GACCD_RETURN_IF_ERROR(plan->Run());
        GACCD_ASSIGN_OR_RETURN(const void* b, ParameterAs(context, c.optional_in<void>(2), dtype));
        if (b == nullptr) return Status::Ok();
        return EnqueueAddBias(on, dtype, b, c.outputs[0], {size.results(), size.out}, false);
      },
      parts.bytes());
}

std::int64_t PaddedChannels(std::int64_t channels) {
  return (channels + kChannelsTogether - 1) / kChannelsTogether * kChannelsTogether;
}

// Scratch: the workspace of the plan, the gradient as channels last, and dy and x with padded
// channels.
KernelResult MakeWeightGradient(const CudaRequest& request, const ConvSize& size,
                                const ConvSize& padded, const PlanPointer& plan) {
  const DType dtype = request.dtype();
  const auto half = static_cast<std::int64_t>(SizeOf(dtype));
  const std::int64_t pixels = size.images * size.image[0] * size.image[1];
  ScratchParts parts;
  parts.Add(plan->workspace_bytes());
  const std::size_t gradient = parts.Add(padded.out * padded.columns() * 4);
  const std::size_t more_dy =
      parts.Add(padded.out > size.out ? padded.results() * padded.out * half : 0);
  const std::size_t more_x = parts.Add(padded.in > size.in ? padded.image_elements() * half : 0);
  return MakeCall(
      request,
      [=, on = request.on](const Call& c) -> Status {
        ConvPointers at{c.inputs[0], c.inputs[1], At(c.scratch, gradient)};
        if (padded.out > size.out) {
          std::byte* const to = At(c.scratch, more_dy);
          GACCD_RETURN_IF_ERROR(
              EnqueuePadChannels(on, dtype, at.first, size.results(), size.out, padded.out, to));
          at.first = to;
        }
        if (padded.in > size.in) {
          std::byte* const to = At(c.scratch, more_x);
          GACCD_RETURN_IF_ERROR(
              EnqueuePadChannels(on, dtype, at.second, pixels, size.in, padded.in, to));
          at.second = to;
        }
        plan->Bind(at, c.scratch);
        GACCD_RETURN_IF_ERROR(plan->Run());
        return EnqueueFromChannelsLast(on, size, static_cast<const float*>(at.out),
                                       padded.in_of_group(), c.out<float>(0), c.add[0]);
      },
      parts.bytes());
}

}  // namespace

KernelResult MakeConv2dCuda(const CudaRequest& request) {
  const ConvSize size = MakeConvSize(request.inputs[0], request.outputs[0], request.inputs[1].shape,
                                     static_cast<const Conv2d&>(request.function).options());
  GACCD_ASSIGN_OR_RETURN(const PlanPointer plan, PlanFor(request, size, ConvPass::kForward));
  if (plan != nullptr) return MakeWithWeight(request, size, plan);
  if (size.groups == 1) return MakeProduct(request, size);
  ScratchParts parts;
  const CastWeight weight(request, parts);
  return MakeCall(
      request,
      [=, on = request.on, dtype = request.dtype(),
       &context = request.context](const Call& c) -> Status {
        GACCD_ASSIGN_OR_RETURN(const void* w, weight.Get(c));
        GACCD_ASSIGN_OR_RETURN(const void* b, ParameterAs(context, c.optional_in<void>(2), dtype));
        return EnqueueConv2d(on, dtype, size, c.inputs[0], w, b, c.outputs[0]);
      },
      parts.bytes());
}

KernelResult MakeConv2dInputGradientCuda(const CudaRequest& request) {
  const ConvSize size =
      MakeConvSize(request.outputs[0], request.inputs[0], request.inputs[1].shape,
                   static_cast<const Conv2dInputGradient&>(request.function).options());
  GACCD_ASSIGN_OR_RETURN(const PlanPointer plan, PlanFor(request, size, ConvPass::kInputGradient));
  if (plan != nullptr) return MakeWithWeight(request, size, plan);
  if (size.groups == 1) return MakeInputProduct(request, size);
  ScratchParts parts;
  const CastWeight weight(request, parts);
  return MakeCall(
      request,
      [=, on = request.on, dtype = request.dtype()](const Call& c) -> Status {
        GACCD_ASSIGN_OR_RETURN(const void* w, weight.Get(c));
        return EnqueueConv2dInputGradient(on, dtype, size, c.inputs[0], w, c.outputs[0]);
      },
      parts.bytes());
}

KernelResult MakeConv2dWeightGradientCuda(const CudaRequest& request) {
  const ConvSize size =
      MakeConvSize(request.inputs[1], request.inputs[0], request.outputs[0].shape,
                   static_cast<const Conv2dWeightGradient&>(request.function).options());
  if (size.groups > 1 && size.groups == size.in && size.in == size.out) {
    return MakeCall(
        request,
        [=, on = request.on, dtype = request.dtype()](const Call& c) {
          return EnqueueDepthwiseWeightGradient(on, dtype, size, c.inputs[0], c.inputs[1],
                                                static_cast<float*>(c.scratch), c.out<float>(0),
                                                c.add[0]);
        },
        static_cast<std::size_t>(DepthwiseScratchBytes(request.on, size)));
  }
  ConvSize padded = size;
  if (size.groups == 1) {
    padded.in = PaddedChannels(size.in);
    padded.out = PaddedChannels(size.out);
  }
  GACCD_ASSIGN_OR_RETURN(const PlanPointer plan,
                         PlanFor(request, padded, ConvPass::kWeightGradient));
  if (plan != nullptr) return MakeWeightGradient(request, size, padded, plan);
  if (size.groups == 1) return MakeWeightProduct(request, size);
  return MakeCall(request, [=, on = request.on, dtype = request.dtype()](const Call& c) {
    return EnqueueConv2dWeightGradient(on, dtype, size, c.inputs[0], c.inputs[1], c.out<float>(0),
                                       c.add[0]);
  });
}

}  // namespace gaccd
