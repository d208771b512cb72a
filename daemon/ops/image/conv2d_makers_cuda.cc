// In one group by a product of cuBLASLt with the columns of x, which are made in scratch memory; in
// several groups by kernels of its own.
#include <memory>
#include <utility>

#include "daemon/device/cuda/matmul_cuda.h"
#include "daemon/ops/image/conv2d_cuda.h"
#include "daemon/ops/product/linear_cuda.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;
using MatmulPointer = std::shared_ptr<MatmulCuda>;
constexpr auto kBackward = MatmulCuda::Pass::kBackward;

ConvSize SizeOf(const ValueSpec& x, const ValueSpec& y, const Shape& weight,
                const Conv2dOptions& options) {
  return {.images = x.shape[0],
          .in = x.shape[3],
          .out = y.shape[3],
          .groups = options.groups,
          .image = {x.shape[1], x.shape[2]},
          .result = {y.shape[1], y.shape[2]},
          .kernel = KernelOf(weight),
          .stride = options.stride,
          .padding = options.padding,
          .dilation = options.dilation};
}

std::size_t ColumnBytes(const ConvSize& size, DType dtype) {
  if (size.is_product()) return 0;
  return static_cast<std::size_t>(size.results() * size.columns()) * SizeOf(dtype);
}

Result<MatmulPointer> Prepare(const CudaRequest& request, const MatmulCudaSpec& spec,
                              MatmulCuda::Pass pass = MatmulCuda::Pass::kForward) {
  GACCD_ASSIGN_OR_RETURN(auto matmul, MatmulCuda::Prepare(request.context, spec, pass));
  return MatmulPointer(std::move(matmul));
}

// y = columns W^T, and then the bias.
KernelResult MakeProduct(const CudaRequest& request, const ConvSize& size) {
  const DType dtype = request.dtype();
  GACCD_ASSIGN_OR_RETURN(const MatmulPointer matmul, Prepare(request, {.m = size.results(),
                                                                       .n = size.out,
                                                                       .k = size.columns(),
                                                                       .transpose_b = true,
                                                                       .ab = dtype,
                                                                       .c = dtype}));
  return MakeCall(
      request,
      [=, on = request.on, &context = request.context](const Call& c) -> Status {
        const void* columns = c.inputs[0];
        if (!size.is_product()) {
          GACCD_RETURN_IF_ERROR(EnqueueColumns(on, dtype, size, c.inputs[0], c.scratch));
          columns = c.scratch;
        }
        GACCD_ASSIGN_OR_RETURN(const void* w, ParameterAs(context, c.inputs[1], dtype));
        GACCD_RETURN_IF_ERROR(matmul->Bind(columns, w, nullptr, c.outputs[0], nullptr));
        GACCD_RETURN_IF_ERROR(matmul->Run());
        GACCD_ASSIGN_OR_RETURN(const void* b, ParameterAs(context, c.optional_in<void>(2), dtype));
        if (b == nullptr) return Status::Ok();
        return EnqueueAddBias(on, dtype, b, c.outputs[0], {size.results(), size.out}, false);
      },
      ColumnBytes(size, dtype));
}

// dx = the sums of the columns dy W. The columns are f32: they are rounded once.
KernelResult MakeInputProduct(const CudaRequest& request, const ConvSize& size) {
  const DType dtype = request.dtype();
  const DType of_columns = size.is_product() ? dtype : DType::kF32;
  GACCD_ASSIGN_OR_RETURN(
      const MatmulPointer matmul,
      Prepare(
          request,
          {.m = size.results(), .n = size.columns(), .k = size.out, .ab = dtype, .c = of_columns},
          kBackward));
  return MakeCall(
      request,
      [=, on = request.on, &context = request.context](const Call& c) -> Status {
        GACCD_ASSIGN_OR_RETURN(const void* w, ParameterAs(context, c.inputs[1], dtype));
        void* const columns = size.is_product() ? c.outputs[0] : c.scratch;
        GACCD_RETURN_IF_ERROR(matmul->Bind(c.inputs[0], w, nullptr, columns, nullptr));
        GACCD_RETURN_IF_ERROR(matmul->Run());
        if (size.is_product()) return Status::Ok();
        return EnqueueSumOfColumns(on, dtype, size, static_cast<const float*>(c.scratch),
                                   c.outputs[0]);
      },
      ColumnBytes(size, of_columns));
}

// dW = dy^T columns, or dW += : two products, one of which adds.
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
          GACCD_RETURN_IF_ERROR(EnqueueColumns(on, dtype, size, c.inputs[1], c.scratch));
          columns = c.scratch;
        }
        MatmulCuda& matmul = c.add[0] ? *add : *overwrite;
        GACCD_RETURN_IF_ERROR(matmul.Bind(c.inputs[0], columns, nullptr, c.outputs[0], nullptr));
        return matmul.Run();
      },
      ColumnBytes(size, dtype));
}

}  // namespace

KernelResult MakeConv2dCuda(const CudaRequest& request) {
  const ConvSize size = SizeOf(request.inputs[0], request.outputs[0], request.inputs[1].shape,
                               static_cast<const Conv2d&>(request.function).options());
  if (size.groups == 1) return MakeProduct(request, size);
  return MakeCall(request,
                  [=, on = request.on, dtype = request.dtype(),
                   &context = request.context](const Call& c) -> Status {
                    GACCD_ASSIGN_OR_RETURN(const void* w, ParameterAs(context, c.inputs[1], dtype));
                    GACCD_ASSIGN_OR_RETURN(const void* b,
                                           ParameterAs(context, c.optional_in<void>(2), dtype));
                    return EnqueueConv2d(on, dtype, size, c.inputs[0], w, b, c.outputs[0]);
                  });
}

KernelResult MakeConv2dInputGradientCuda(const CudaRequest& request) {
  const ConvSize size = SizeOf(request.outputs[0], request.inputs[0], request.inputs[1].shape,
                               static_cast<const Conv2dInputGradient&>(request.function).options());
  if (size.groups == 1) return MakeInputProduct(request, size);
  return MakeCall(request,
                  [=, on = request.on, dtype = request.dtype(),
                   &context = request.context](const Call& c) -> Status {
                    GACCD_ASSIGN_OR_RETURN(const void* w, ParameterAs(context, c.inputs[1], dtype));
                    return EnqueueConv2dInputGradient(on, dtype, size, c.inputs[0], w,
                                                      c.outputs[0]);
                  });
}

KernelResult MakeConv2dWeightGradientCuda(const CudaRequest& request) {
  const ConvSize size =
      SizeOf(request.inputs[1], request.inputs[0], request.outputs[0].shape,
             static_cast<const Conv2dWeightGradient&>(request.function).options());
  if (size.groups == 1) return MakeWeightProduct(request, size);
  return MakeCall(request, [=, on = request.on, dtype = request.dtype()](const Call& c) {
    return EnqueueConv2dWeightGradient(on, dtype, size, c.inputs[0], c.inputs[1], c.out<float>(0),
                                       c.add[0]);
  });
}

}  // namespace gaccd
