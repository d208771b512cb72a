// The GPU's kernels. Which function is computed by what: function_table.h. All kernels run on
// CudaContext::compute() and never wait on the host. All but those of collective functions can be
// captured. No kernel adds floats atomically: equal bits from run to run.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/autograd/kernel.h"

namespace gaccd {

class Communicator;
class CudaContext;

// `context` and `comm` (of collective functions; may be null) must outlive the factory and its
// kernels. Make() is kConfig, naming the function and
// the types, where there is no kernel.
// `notes` (may be null; lives as long as the factory) gets a line for every thing that is done
// otherwise than it should be, because a library does not offer it. Only built with CUDA; the rest
// of this header always is.
[[nodiscard]] std::unique_ptr<KernelFactory> MakeCudaKernels(
    CudaContext& context, std::vector<std::string>* notes = nullptr, Communicator* comm = nullptr);

// By the name of the function.
[[nodiscard]] bool HasCudaKernel(std::string_view function);

// Of a graph after FuseForCuda(): kConfig, naming every function that has no kernel on the GPU, or
// the first layer that its kernel does not take. Needs no GPU: at plan time.
Status CheckCudaKernels(const Graph& graph);

// Replaces nodes by ones that the GPU does in fewer kernels, with the same result, by the fusion
// rules of the function table; then PadRows(). To be called on a recorded graph, after Simplify().
void FuseForCuda(Graph& graph);

}  // namespace gaccd
