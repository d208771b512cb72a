// Factory of the CPU kernels. function_table.h lists the kernel of each function.
#pragma once

#include <memory>

#include "daemon/autograd/kernel.h"
#include "daemon/tensor/float_types.h"

namespace gaccd {

class Communicator;
class CpuContext;

struct CpuKernelOptions {
  // Micro-steps between two changes of the weights: packing a weight costs about as much as it
  // saves in a few products (figures in linear_cpu.cc).
  std::int64_t runs_per_update = 1;
};

// Arguments of kernel makers besides the node. `context` must outlive the kernels.
struct CpuEnvironment {
  CpuContext& context;
  CpuKernelOptions options;
  Communicator* comm = nullptr;  // for collective functions; null: none
};

// `context` and `comm` (may be null) must outlive the factory and its kernels.
[[nodiscard]] std::unique_ptr<KernelFactory> MakeCpuKernels(CpuContext& context,
                                                            const CpuKernelOptions& options,
                                                            Communicator* comm = nullptr);

// Merges nodes into ones that do several operations in one pass, with the same result. Call on a
// recorded graph after Simplify() and before RoundProductsToBf16().
void FuseForCpu(Graph& graph);
// The same for nodes that may be bf16. Call after RoundProductsToBf16(), if that is called.
void FuseRoundedForCpu(Graph& graph);

// values[i] = max(values[i], 0); a NaN stays NaN.
void ReluInPlace(float* values, std::int64_t elements);
void ReluInPlace(Bf16* values, std::int64_t elements);

}  // namespace gaccd
