// CudaGraph: the work that a function enqueues on a stream, recorded once and launched many times
// as a whole. Kernels, copies and events of CUDA calls are recorded with their addresses: these
// must stay valid, and what differs from launch to launch must lie in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>

#include "collectives/base/cuda.h"
#include "collectives/base/result.h"

namespace gaccd {

// Movable; used by one thread at a time.
class CudaGraph {
 public:
  CudaGraph() = default;
  // Records what `body` enqueues on `stream` and on streams that wait for it and are joined again
  // before `body` returns. Nothing runs. Other threads may continue calling CUDA meanwhile. If
  // `body` fails, its error comes back and `stream` is usable again. kUnavailable: CUDA refused,
  // e.g. because `body` waited for the device or left a stream unjoined.
  static Result<CudaGraph> Capture(cudaStream_t stream, const std::function<Status()>& body);

  // Enqueues the recorded work on `stream` (any stream of the same device).
  // REQUIRES: made by Capture().
  [[nodiscard]] Status Launch(cudaStream_t stream) const;

  // Kernels, copies, ... in the graph.
  [[nodiscard]] std::size_t nodes() const { return exec_ == nullptr ? 0 : nodes_; }

 private:
  CudaOwner<cudaGraphExec_t, cudaGraphExecDestroy> exec_;
  std::size_t nodes_ = 0;
};

}  // namespace gaccd
