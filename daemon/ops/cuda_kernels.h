// Factory of the GPU kernels. function_table.h lists the kernel of each function. All kernels run
// on CudaContext::compute() and never wait on the host. All except those of collective functions
// can be captured. No kernel uses atomic float additions, so results are bit-identical from run to
// run.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "daemon/autograd/graph.h"
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

// PadRows: pads the rows of the graph's widest matrices for efficient access on a GPU. For example,
// 16-bit rows of a vocabulary of 50257 have 100514 bytes: without a stride they begin at odd
// multiples of 2 bytes and cannot be read 16 bytes at a time or by cuBLASLt's fast algorithms.

// 16-bit products are fast if rows and columns are multiples of this: 16 bytes.
inline constexpr std::int64_t kRowsTogether = 8;

// The stride for rows of `columns` values: a multiple of 64 for 16-bit rows of at least 1024 values
// that are not a multiple of 16 bytes; otherwise 0.
[[nodiscard]] std::int64_t RowStrideFor(DType dtype, std::int64_t columns);

// Sets strides of activation matrices if every GPU kernel that accesses them supports strides
// (function_row.h). Input and output of an in-place function get the same stride or none. Gaps
// between rows have undefined content, except in gradients of logits, the only gradients with a
// stride: there zeros follow up to a multiple of kRowsTogether.
void PadRows(Graph& graph);

}  // namespace gaccd
