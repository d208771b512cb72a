// The CPU's kernels: what makes them. Which function is computed by what: function_table.h.
#pragma once

#include <memory>

#include "daemon/autograd/kernel.h"
#include "daemon/tensor/bf16.h"

namespace gaccd {

class Communicator;
class CpuContext;

struct CpuKernelOptions {
  // Micro-steps between two changes of the weights: packing a weight costs about as much as a few
  // products save (figures in linear_cpu.cc).
  std::int64_t runs_per_update = 1;
};

// What makers need in addition to the node. `context` must outlive the kernels.
struct CpuEnvironment {
  CpuContext& context;
  CpuKernelOptions options;
  Communicator* comm = nullptr;  // of collective functions; null: there are none
};

// `context` and `comm` (may be null) must outlive the factory and its kernels.
[[nodiscard]] std::unique_ptr<KernelFactory> MakeCpuKernels(CpuContext& context,
                                                            const CpuKernelOptions& options,
                                                            Communicator* comm = nullptr);

// Makers, by function. The operands are what the function infers (Executor::Prepare checks that);
// kInternal where a library refuses what the request asks for.
KernelResult MakeAccumulateCpu(const KernelRequest& request);
KernelResult MakeAddCpu(const KernelRequest& request);
KernelResult MakeAddPositionsCpu(const KernelRequest& request);
KernelResult MakeAttentionCpu(const KernelRequest& request);
KernelResult MakeAttentionGradientCpu(const KernelRequest& request);
KernelResult MakeBiasGradientCpu(const KernelRequest& request);
KernelResult MakeCastCpu(const KernelRequest& request);
KernelResult MakeCollectiveCpu(const KernelRequest& request, const CpuEnvironment& environment);
KernelResult MakeDropoutCpu(const KernelRequest& request);
KernelResult MakeEmbeddingCpu(const KernelRequest& request);
KernelResult MakeEmbeddingGradientCpu(const KernelRequest& request);
KernelResult MakeJoinColumnsCpu(const KernelRequest& request);
KernelResult MakeJoinColumnsGradientCpu(const KernelRequest& request);
KernelResult MakeFirstRowsCpu(const KernelRequest& request);
KernelResult MakeFirstRowsGradientCpu(const KernelRequest& request);
KernelResult MakeGeluCpu(const KernelRequest& request);
KernelResult MakeGeluGradientCpu(const KernelRequest& request);
KernelResult MakeGeluTanhCpu(const KernelRequest& request);
KernelResult MakeGeluTanhGradientCpu(const KernelRequest& request);
KernelResult MakeL2NormalizeCpu(const KernelRequest& request);
KernelResult MakeL2NormalizeGradientCpu(const KernelRequest& request);
KernelResult MakeLayerNormCpu(const KernelRequest& request);
KernelResult MakeLayerNormGradientCpu(const KernelRequest& request);
KernelResult MakeLinearCpu(const KernelRequest& request, const CpuEnvironment& environment);
KernelResult MakeLinearInputGradientCpu(const KernelRequest& request,
                                        const CpuEnvironment& environment);
KernelResult MakeLinearWeightGradientCpu(const KernelRequest& request,
                                         const CpuEnvironment& environment);
KernelResult MakeMeanRowsCpu(const KernelRequest& request);
KernelResult MakeMeanRowsGradientCpu(const KernelRequest& request);
KernelResult MakeMeanSquaredErrorCpu(const KernelRequest& request);
KernelResult MakeMeanSquaredErrorGradientCpu(const KernelRequest& request);
KernelResult MakePositionsGradientCpu(const KernelRequest& request);
KernelResult MakeReluCpu(const KernelRequest& request);
KernelResult MakeReluGradientCpu(const KernelRequest& request);
KernelResult MakeSiluCpu(const KernelRequest& request);
KernelResult MakeSiluGradientCpu(const KernelRequest& request);
KernelResult MakeSoftmaxCpu(const KernelRequest& request);
KernelResult MakeSoftmaxCrossEntropyCpu(const KernelRequest& request);
KernelResult MakeSoftmaxCrossEntropyGradientCpu(const KernelRequest& request);
KernelResult MakeSoftmaxGradientCpu(const KernelRequest& request);
KernelResult MakeTanhCpu(const KernelRequest& request);
KernelResult MakeTanhGradientCpu(const KernelRequest& request);
KernelResult MakeTokenCrossEntropyCpu(const KernelRequest& request);
KernelResult MakeTokenCrossEntropyGradientCpu(const KernelRequest& request);
KernelResult MakeZerosCpu(const KernelRequest& request);

// values[i] = max(values[i], 0); a NaN stays.
void ReluInPlace(float* values, std::int64_t elements);
void ReluInPlace(Bf16* values, std::int64_t elements);

}  // namespace gaccd
