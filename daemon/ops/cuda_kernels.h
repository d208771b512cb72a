// Factory of the GPU kernels. function_table.h lists the kernel of each function. All kernels run
// on CudaContext::compute() and never wait on the host. All except those of collective functions
// can be captured. No kernel uses atomic float additions, so results are bit-identical from run to
// run.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/autograd/kernel.h"

namespace gaccd {

class Communicator;
class CudaContext;

// `context` and `comm` (for collective functions; may be null) must outlive the factory and its
// kernels. Make() returns kConfig, with the function and the types, if there is no kernel. `notes`
// (may be null; must outlive the factory) receives a line for every fallback because a library
// lacks a feature. Only built with CUDA; the rest of this header always is.
[[nodiscard]] std::unique_ptr<KernelFactory> MakeCudaKernels(
    CudaContext& context, std::vector<std::string>* notes = nullptr, Communicator* comm = nullptr);

// function: its name.
[[nodiscard]] bool HasCudaKernel(std::string_view function);

// For a graph after FuseForCuda(): kConfig, with every function that has no GPU kernel, or the
// first layer that its kernel does not support. Needs no GPU: called at plan time.
Status CheckCudaKernels(const Graph& graph);

// Merges nodes into ones with fewer GPU kernels, with the same result, by the fusion rules of the
// function table; then PadRows(). Call on a recorded graph after Simplify().
void FuseForCuda(Graph& graph);

}  // namespace gaccd
