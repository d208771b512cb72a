// What the makers of kernels of the GPU get: the node, and what all of them need.
#pragma once

#include <string>
#include <vector>

#include "daemon/device/cuda/cuda_context.h"
#include "daemon/ops/cuda_makers.h"
#include "daemon/ops/kernels_cuda.h"

namespace gaccd {

class Communicator;

struct CudaRequest : KernelRequest {
  CudaContext& context;  // outlives the kernel
  KernelStream on;
  // Gets a line for every thing that is done otherwise than it should be, because a library does
  // not offer it.
  std::vector<std::string>& notes;
  Communicator* comm = nullptr;  // of collective functions; null: there is none

  [[nodiscard]] DType dtype() const { return inputs[0].dtype; }
  [[nodiscard]] std::int64_t elements() const { return Elements(inputs[0].shape); }
  // REQUIRES: the first input is a matrix.
  [[nodiscard]] Matrix size() const { return {inputs[0].shape[0], inputs[0].shape[1]}; }
};

}  // namespace gaccd
