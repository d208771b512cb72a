// The makers of the GPU's kernels, by function; see function_table.h. Declared without CUDA's
// headers, so that the table can be read where gaccd is built without CUDA.
#pragma once

#include "daemon/autograd/kernel.h"

namespace gaccd {

struct CudaRequest;  // cuda_request.h
using CudaMaker = KernelResult (*)(const CudaRequest&);

KernelResult MakeAccumulateCuda(const CudaRequest& request);
KernelResult MakeActivationCuda(const CudaRequest& request);
KernelResult MakeActivationGradientCuda(const CudaRequest& request);
KernelResult MakeAddCuda(const CudaRequest& request);
KernelResult MakeAddLayerNormCuda(const CudaRequest& request);
KernelResult MakeAddPositionsCuda(const CudaRequest& request);
KernelResult MakeAttentionCuda(const CudaRequest& request);
KernelResult MakeAttentionGradientCuda(const CudaRequest& request);
KernelResult MakeBiasGradientCuda(const CudaRequest& request);
KernelResult MakeCastCuda(const CudaRequest& request);
KernelResult MakeCollectiveCuda(const CudaRequest& request);
KernelResult MakeDropoutCuda(const CudaRequest& request);
KernelResult MakeEmbeddingCuda(const CudaRequest& request);
KernelResult MakeEmbeddingGradientCuda(const CudaRequest& request);
KernelResult MakeFirstRowsCuda(const CudaRequest& request);
KernelResult MakeFirstRowsGradientCuda(const CudaRequest& request);
KernelResult MakeJoinColumnsCuda(const CudaRequest& request);
KernelResult MakeJoinColumnsGradientCuda(const CudaRequest& request);
KernelResult MakeL2NormalizeCuda(const CudaRequest& request);
KernelResult MakeL2NormalizeGradientCuda(const CudaRequest& request);
KernelResult MakeLayerNormCuda(const CudaRequest& request);
KernelResult MakeLayerNormGradientCuda(const CudaRequest& request);
KernelResult MakeLinearCuda(const CudaRequest& request);
KernelResult MakeLinearInputGradientCuda(const CudaRequest& request);
KernelResult MakeLinearWeightBiasGradientCuda(const CudaRequest& request);
KernelResult MakeLinearWeightGradientCuda(const CudaRequest& request);
KernelResult MakeMeanRowsCuda(const CudaRequest& request);
KernelResult MakeMeanRowsGradientCuda(const CudaRequest& request);
KernelResult MakeMeanSquaredErrorCuda(const CudaRequest& request);
KernelResult MakeMeanSquaredErrorFusedCuda(const CudaRequest& request);
KernelResult MakeMeanSquaredErrorGradientCuda(const CudaRequest& request);
KernelResult MakePositionsGradientCuda(const CudaRequest& request);
KernelResult MakeReluCuda(const CudaRequest& request);
KernelResult MakeReluGradientCuda(const CudaRequest& request);
KernelResult MakeSoftmaxCrossEntropyCuda(const CudaRequest& request);
KernelResult MakeSoftmaxCrossEntropyFusedCuda(const CudaRequest& request);
KernelResult MakeSoftmaxCrossEntropyGradientCuda(const CudaRequest& request);
KernelResult MakeSoftmaxCrossEntropyLossCuda(const CudaRequest& request);
KernelResult MakeSoftmaxCuda(const CudaRequest& request);
KernelResult MakeSoftmaxGradientCuda(const CudaRequest& request);
KernelResult MakeTokenCrossEntropyCuda(const CudaRequest& request);
KernelResult MakeTokenCrossEntropyGradientCuda(const CudaRequest& request);
KernelResult MakeZerosCuda(const CudaRequest& request);

}  // namespace gaccd
