// The makers of kernels that are one call of kernels_cuda.h.
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/label_ranks.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

KernelResult Make(const CudaRequest& request, CallKernel::Action run,
                  std::size_t scratch_bytes = 0) {
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(request, std::move(run), scratch_bytes));
}

}  // namespace

KernelResult MakeAccumulateCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), n = request.elements()](const Call& c) {
                return EnqueueAccumulate(on, dtype, c.inputs[0], c.out<float>(0), n, c.add[0]);
              });
}

KernelResult MakeAddCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), n = request.elements()](const Call& c) {
                return EnqueueAdd(on, dtype, c.inputs[0], c.inputs[1], c.outputs[0], n);
              });
}

KernelResult MakeBiasGradientCuda(const CudaRequest& request) {
  return Make(
      request,
      [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
        return EnqueueBiasGradient(on, dtype, c.inputs[0], size, c.out<float>(0), c.add[0],
                                   c.scratch);
      },
      BiasGradientScratchBytes(request.size()));
}

KernelResult MakeCastCuda(const CudaRequest& request) {
  return Make(request, [on = request.on, from = request.dtype(), to = request.outputs[0].dtype,
                        n = request.elements()](const Call& c) {
    return EnqueueCast(on, from, c.inputs[0], to, c.outputs[0], n);
  });
}

KernelResult MakeLabelRanksCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
                return EnqueueLabelRanks(on, dtype, c.inputs[0], c.in<std::int32_t>(1), size,
                                         c.out<std::int32_t>(0), c.out<std::int32_t>(1));
              });
}

KernelResult MakeMeanSquaredErrorCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
                return EnqueueMeanSquaredError(on, dtype, c.inputs[0], c.in<float>(1), nullptr,
                                               size, c.out<double>(0), nullptr);
              });
}

KernelResult MakeMeanSquaredErrorFusedCuda(const CudaRequest& request) {
  return Make(
      request, [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
        return EnqueueMeanSquaredError(on, dtype, c.inputs[0], c.in<float>(1), c.in<float>(2), size,
                                       c.out<double>(1), c.outputs[0]);
      });
}

KernelResult MakeMeanSquaredErrorGradientCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
                return EnqueueMeanSquaredError(on, dtype, c.inputs[0], c.in<float>(1),
                                               c.in<float>(2), size, nullptr, c.outputs[0]);
              });
}

KernelResult MakeReluCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), n = request.elements()](const Call& c) {
                return EnqueueRelu(on, dtype, c.inputs[0], c.outputs[0], n);
              });
}

KernelResult MakeReluGradientCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), n = request.elements()](const Call& c) {
                return EnqueueReluGradient(on, dtype, c.inputs[0], c.inputs[1], c.outputs[0], n);
              });
}

KernelResult MakeSoftmaxCrossEntropyCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
                return EnqueueSoftmaxCrossEntropy(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                                  size, c.out<double>(0), c.outputs[1]);
              });
}

KernelResult MakeSoftmaxCrossEntropyLossCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
                return EnqueueSoftmaxCrossEntropy(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                                  size, c.out<double>(0), nullptr);
              });
}

KernelResult MakeSoftmaxCrossEntropyFusedCuda(const CudaRequest& request) {
  return Make(request, [on = request.on, dtype = request.dtype(),
                        size = request.size()](const Call& c) {
    return EnqueueSoftmaxCrossEntropyFused(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                           c.in<float>(2), size, c.out<double>(1), c.outputs[0]);
  });
}

KernelResult MakeSoftmaxCrossEntropyGradientCuda(const CudaRequest& request) {
  return Make(
      request, [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
        return EnqueueSoftmaxCrossEntropyGradient(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                                  c.in<float>(2), size, c.outputs[0]);
      });
}

KernelResult MakeZerosCuda(const CudaRequest& request) {
  std::vector<std::size_t> bytes;
  for (const ValueSpec& spec : request.outputs) {
    bytes.push_back(static_cast<std::size_t>(spec.bytes()));
  }
  return Make(request, [stream = request.on.stream, bytes = std::move(bytes)](const Call& c) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      if (c.add[i] || bytes[i] == 0) continue;
      GACCD_RETURN_IF_ERROR(
          CudaStatus(cudaMemsetAsync(c.outputs[i], 0, bytes[i], stream), "sums over no samples"));
    }
    return Status::Ok();
  });
}

}  // namespace gaccd
