// CudaGraph: work enqueued on a stream, captured once and launched many times. Kernels, copies and
// events are captured with their addresses, which must stay valid; values that differ between
// launches must be in device memory. TimeWork() measures work as a graph.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <functional>
#include <limits>

#include "collectives/base/cuda.h"
#include "collectives/base/dtype.h"
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

// Microseconds of the work that `enqueue` enqueues on the stream, run as a graph, as in the engine.
// A time far above `best` is only rough. Waits for the GPU. REQUIRES: the work has run once, so
// that everything is loaded.
Result<double> TimeWork(cudaStream_t stream, const std::function<Status()>& enqueue,
                        double best = std::numeric_limits<double>::infinity());

// Data for timing matrix products and kernels on a GPU.

// Fills the buffer with the same uniform values in [-1, 1) at every call, f32, bf16 or fp16,
// repeated every MiB. Zeros are unsuitable for timing: a GPU draws less power with them and runs
// faster, so a ranking would differ from that of real data. Waits for the GPU.
Status FillRandom(const DeviceBuffer& buffer, DType dtype);

}  // namespace gaccd
