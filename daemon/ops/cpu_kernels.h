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

// Replaces nodes by ones that do several in one pass over the values, with the same result. To be
// called on a recorded graph, after Simplify() and before RoundProductsToBf16().
void FuseForCpu(Graph& graph);

// values[i] = max(values[i], 0); a NaN stays.
void ReluInPlace(float* values, std::int64_t elements);
void ReluInPlace(Bf16* values, std::int64_t elements);

}  // namespace gaccd
