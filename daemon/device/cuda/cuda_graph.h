// CudaGraph: work enqueued on a stream, captured once and launched many times. Kernels, copies and
// events are captured with their addresses, which must stay valid; values that differ between
// launches must be in device memory.
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
  // Captures what `body` enqueues on `stream` and on streams that are forked from it and joined
  // before `body` returns. Nothing runs. Other threads may call CUDA meanwhile. If `body` fails,
  // returns its error, and `stream` is usable again. kUnavailable: CUDA failed, for example because
  // `body` waited for the device or did not join a stream.
  static Result<CudaGraph> Capture(cudaStream_t stream, const std::function<Status()>& body);

  // Enqueues the captured work on `stream` (any stream of the same device). REQUIRES: made by
  // Capture().
  [[nodiscard]] Status Launch(cudaStream_t stream) const;

  // Number of kernels, copies, ... in the graph.
  [[nodiscard]] std::size_t nodes() const { return exec_ == nullptr ? 0 : nodes_; }

 private:
  CudaOwner<cudaGraphExec_t, cudaGraphExecDestroy> exec_;
  std::size_t nodes_ = 0;
};

}  // namespace gaccd
