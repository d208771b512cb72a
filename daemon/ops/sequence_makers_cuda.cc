// The makers of the kernels of sequence_kernels_cuda.h.
#include "daemon/ops/activations.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/cuda_request.h"
#include "daemon/ops/dropout.h"
#include "daemon/ops/embedding.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/ops/layer_norm.h"
#include "daemon/ops/pool_rows.h"
#include "daemon/ops/row_functions.h"
#include "daemon/ops/sequence_kernels_cuda.h"
#include "daemon/ops/token_cross_entropy.h"

namespace gaccd {
namespace {

using Call = CallKernel::Call;

KernelResult Make(const CudaRequest& request, CallKernel::Action run,
                  std::size_t scratch_bytes = 0) {
  return std::unique_ptr<Kernel>(
      std::make_unique<CallKernel>(request, std::move(run), scratch_bytes));
}

Matrix MatrixOf(const ValueSpec& spec) { return {spec.shape[0], spec.shape[1]}; }

const std::int32_t* Optional(const Call& c, std::size_t input) {
  return c.inputs.size() > input ? c.in<std::int32_t>(input) : nullptr;
}

}  // namespace

KernelResult MakeActivationCuda(const CudaRequest& request) {
  const ActivationKind kind = static_cast<const Activation&>(request.function).kind();
  return Make(request, [on = request.on, kind, dtype = request.dtype(),
                        n = request.elements()](const Call& c) {
    return EnqueueActivation(on, kind, dtype, c.inputs[0], c.outputs[0], n);
  });
}

KernelResult MakeActivationGradientCuda(const CudaRequest& request) {
  const ActivationKind kind = static_cast<const ActivationGradient&>(request.function).kind();
  return Make(request, [on = request.on, kind, dtype = request.dtype(),
                        n = request.elements()](const Call& c) {
    return EnqueueActivationGradient(on, kind, dtype, c.inputs[0], c.inputs[1], c.outputs[0], n);
  });
}

KernelResult MakeAddPositionsCuda(const CudaRequest& request) {
  const std::int64_t length = static_cast<const AddPositions&>(request.function).length();
  return Make(request, [on = request.on, dtype = request.dtype(), n = request.elements(),
                        sequence = length * request.size().columns](const Call& c) {
    return EnqueueAddPositions(on, dtype, c.inputs[0], c.in<float>(1), n, sequence, c.outputs[0]);
  });
}

KernelResult MakePositionsGradientCuda(const CudaRequest& request) {
  const std::int64_t length = static_cast<const PositionsGradient&>(request.function).length();
  const std::int64_t table = Elements(request.outputs[0].shape);
  if (length == 1) {  // one sum over all rows for each column, which is a bias gradient
    const Matrix size = MatrixOf(request.inputs[0]);
    return Make(
        request,
        [on = request.on, dtype = request.dtype(), size, table](const Call& c) -> Status {
          float* const first_row = c.out<float>(0);
          if (!c.add[0] && table > size.columns) {
            const auto rest = static_cast<std::size_t>(table - size.columns) * sizeof(float);
            GACCD_RETURN_IF_ERROR(
                CudaStatus(cudaMemsetAsync(first_row + size.columns, 0, rest, on.stream),
                           "positions_gradient"));
          }
          return EnqueueBiasGradient(on, dtype, c.inputs[0], size, first_row, c.add[0], c.scratch);
        },
        BiasGradientScratchBytes(size));
  }
  return Make(request, [on = request.on, dtype = request.dtype(), n = request.elements(),
                        sequence = length * request.size().columns, table](const Call& c) {
    return EnqueuePositionsGradient(on, dtype, c.inputs[0], n, sequence, table, c.out<float>(0),
                                    c.add[0]);
  });
}

KernelResult MakeEmbeddingCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.outputs[0].dtype, count = request.elements(),
               table = MatrixOf(request.inputs[1])](const Call& c) {
                return EnqueueEmbedding(on, dtype, c.in<std::int32_t>(0), count, c.in<float>(1),
                                        table, c.outputs[0]);
              });
}

KernelResult MakeEmbeddingGradientCuda(const CudaRequest& request) {
  return Make(request, [on = request.on, dtype = request.dtype(), count = request.size().rows,
                        table = MatrixOf(request.outputs[0])](const Call& c) {
    return EnqueueEmbeddingGradient(on, dtype, c.inputs[0], c.in<std::int32_t>(1), count, table,
                                    c.out<float>(0), c.add[0]);
  });
}

KernelResult MakeDropoutCuda(const CudaRequest& request) {
  const DropoutOptions options = static_cast<const Dropout&>(request.function).options();
  const std::int64_t samples = request.inputs[1].shape[0];
  return Make(
      request,
      [on = request.on, dtype = request.dtype(), samples, elements = request.elements() / samples,
       mask = DropoutMask::For(static_cast<double>(options.probability)), options](const Call& c) {
        return EnqueueDropout(on, dtype, c.inputs[0], c.in<std::int64_t>(1), c.in<std::int64_t>(2),
                              samples, elements, mask, options.seed, options.layer, c.outputs[0]);
      });
}

KernelResult MakeFirstRowsCuda(const CudaRequest& request) {
  const std::int64_t length = static_cast<const PoolRows&>(request.function).length();
  const Matrix y = MatrixOf(request.outputs[0]);
  return Make(request, [on = request.on, dtype = request.dtype(),
                        size = SequenceSize{y.rows, length, y.columns}](const Call& c) {
    return EnqueueFirstRows(on, dtype, c.inputs[0], size, c.outputs[0]);
  });
}

KernelResult MakeFirstRowsGradientCuda(const CudaRequest& request) {
  const std::int64_t length = static_cast<const PoolRowsGradient&>(request.function).length();
  const Matrix dy = request.size();
  return Make(request, [on = request.on, dtype = request.dtype(),
                        size = SequenceSize{dy.rows, length, dy.columns}](const Call& c) {
    return EnqueueFirstRowsGradient(on, dtype, c.inputs[0], size, c.outputs[0]);
  });
}

KernelResult MakeMeanRowsCuda(const CudaRequest& request) {
  const std::int64_t length = static_cast<const PoolRows&>(request.function).length();
  const Matrix y = MatrixOf(request.outputs[0]);
  return Make(request, [on = request.on, dtype = request.dtype(),
                        size = SequenceSize{y.rows, length, y.columns}](const Call& c) {
    return EnqueueMeanRows(on, dtype, c.inputs[0], Optional(c, 1), size, c.outputs[0]);
  });
}

KernelResult MakeMeanRowsGradientCuda(const CudaRequest& request) {
  const std::int64_t length = static_cast<const PoolRowsGradient&>(request.function).length();
  const Matrix dy = request.size();
  return Make(request, [on = request.on, dtype = request.dtype(),
                        size = SequenceSize{dy.rows, length, dy.columns}](const Call& c) {
    return EnqueueMeanRowsGradient(on, dtype, c.inputs[0], Optional(c, 1), size, c.outputs[0]);
  });
}

KernelResult MakeLayerNormCuda(const CudaRequest& request) {
  const float eps = static_cast<const LayerNorm&>(request.function).eps();
  return Make(request, [on = request.on, dtype = request.dtype(), size = request.size(),
                        eps](const Call& c) {
    return EnqueueLayerNorm(on, dtype, c.inputs[0], c.in<float>(1), c.in<float>(2), size, eps,
                            c.outputs[0], c.out<float>(1), c.out<float>(2));
  });
}

KernelResult MakeAddLayerNormCuda(const CudaRequest& request) {
  const float eps = static_cast<const AddLayerNorm&>(request.function).eps();
  return Make(request, [on = request.on, dtype = request.dtype(), size = request.size(),
                        eps](const Call& c) {
    return EnqueueAddLayerNorm(on, dtype, c.inputs[0], c.inputs[1], c.in<float>(2), c.in<float>(3),
                               size, eps, c.outputs[0], c.outputs[1], c.out<float>(2),
                               c.out<float>(3));
  });
}

KernelResult MakeLayerNormGradientCuda(const CudaRequest& request) {
  return Make(
      request,
      [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
        const LayerNormGradients to{c.outputs[0], c.out<float>(1), c.out<float>(2), c.add[1],
                                    c.add[2]};
        return EnqueueLayerNormGradient(on, dtype, c.inputs[0], c.inputs[1], c.in<float>(2),
                                        c.in<float>(3), c.in<float>(4), size, to, c.scratch);
      },
      LayerNormGradientScratchBytes(request.size()));
}

KernelResult MakeSoftmaxCuda(const CudaRequest& request) {
  return Make(request,
              [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
                return EnqueueSoftmax(on, dtype, c.inputs[0], size, c.outputs[0]);
              });
}

KernelResult MakeSoftmaxGradientCuda(const CudaRequest& request) {
  return Make(
      request, [on = request.on, dtype = request.dtype(), size = request.size()](const Call& c) {
        return EnqueueSoftmaxGradient(on, dtype, c.inputs[0], c.inputs[1], size, c.outputs[0]);
      });
}

KernelResult MakeL2NormalizeCuda(const CudaRequest& request) {
  const float eps = static_cast<const L2Normalize&>(request.function).eps();
  return Make(request, [on = request.on, dtype = request.dtype(), size = request.size(),
                        eps](const Call& c) {
    return EnqueueL2Normalize(on, dtype, c.inputs[0], size, eps, c.outputs[0], c.out<float>(1));
  });
}

KernelResult MakeL2NormalizeGradientCuda(const CudaRequest& request) {
  const float eps = static_cast<const L2NormalizeGradient&>(request.function).eps();
  return Make(request, [on = request.on, dtype = request.dtype(), size = request.size(),
                        eps](const Call& c) {
    return EnqueueL2NormalizeGradient(on, dtype, c.inputs[0], c.inputs[1], c.in<float>(2), size,
                                      eps, c.outputs[0]);
  });
}

KernelResult MakeTokenCrossEntropyCuda(const CudaRequest& request) {
  const auto& options = static_cast<const TokenCrossEntropy&>(request.function).options();
  return Make(
      request,
      [on = request.on, dtype = request.dtype(), size = request.size(),
       loss = TokenLoss{options.ignored_label, options.label_smoothing}](const Call& c) {
        return EnqueueTokenCrossEntropy(on, dtype, c.inputs[0], c.in<std::int32_t>(1),
                                        c.inputs.size() > 2 ? c.in<float>(2) : nullptr, size, loss,
                                        c.out<double>(0), c.out<double>(1), c.out<float>(2),
                                        static_cast<double*>(c.scratch));
      },
      static_cast<std::size_t>(request.size().rows) * 2 * sizeof(double));
}

KernelResult MakeTokenCrossEntropyGradientCuda(const CudaRequest& request) {
  const auto& options = static_cast<const TokenCrossEntropyGradient&>(request.function).options();
  return Make(request,
              [on = request.on, dtype = request.dtype(), size = request.size(),
               loss = TokenLoss{options.ignored_label, options.label_smoothing}](const Call& c) {
                return EnqueueTokenCrossEntropyGradient(
                    on, dtype, c.inputs[0], c.in<std::int32_t>(1), c.in<float>(2), c.in<float>(3),
                    c.inputs.size() > 4 ? c.in<float>(4) : nullptr, size, loss, c.outputs[0]);
              });
}

}  // namespace gaccd
