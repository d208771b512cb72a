// Arguments of the makers of GPU kernels: the node and its environment.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/ops/call_kernel.h"
#include "daemon/ops/kernels_cuda.h"
#include "daemon/tensor/float_types.h"
#include "daemon/tensor/vector_cuda.h"

namespace gaccd {

class Communicator;

// REQUIRES: a matrix.
[[nodiscard]] inline Matrix ToMatrix(const ValueSpec& spec) {
  return {spec.shape[0], spec.shape[1], spec.row_stride};
}

struct CudaRequest : KernelRequest {
  CudaContext& context;  // must outlive the kernel
  KernelStream on;
  // Receives a line for every fallback because a library lacks a feature.
  std::vector<std::string>& notes;
  Communicator* comm = nullptr;  // for collective functions; null: none

  [[nodiscard]] DType dtype() const { return inputs[0].dtype; }
  [[nodiscard]] std::int64_t elements() const { return Elements(inputs[0].shape); }
  // REQUIRES: the first input is a matrix.
  [[nodiscard]] Matrix size() const { return ToMatrix(inputs[0]); }
};

// Whether all operands may be accessed 16 bytes at a time.
[[nodiscard]] inline bool IsVectorAligned(const CallKernel::Call& c) {
  const auto aligned = [](const void* pointer) { return IsVectorAligned(pointer); };
  return std::ranges::all_of(c.inputs, aligned) && std::ranges::all_of(c.outputs, aligned);
}

// A kernel that calls run(T(), call), T the type of the first input: float, Bf16 or Fp16.
template <typename Run>
KernelResult MakeTypedCall(const CudaRequest& request, Run run, std::size_t scratch_bytes = 0) {
  return MakeCall(
      request,
      [run = std::move(run), dtype = request.dtype()](const CallKernel::Call& c) {
        return WithFloat(dtype, [&](auto t) { return run(t, c); });
      },
      scratch_bytes);
}

}  // namespace gaccd
