// Entry points of the CUDA runtime: stream capture and graphs.
#include <cuda_runtime_api.h>

#include <utility>

#include "collectives/base/strings.h"
#include "tests/standin/capture.h"
#include "tests/standin/fatal.h"
#include "tests/standin/faults.h"
#include "tests/standin/graph.h"

namespace gaccd::standin {
namespace {

Graph& ToGraph(cudaGraph_t handle) { return *reinterpret_cast<Graph*>(handle); }

ExecutableGraph& ToExecutable(cudaGraphExec_t handle) {
  return *reinterpret_cast<ExecutableGraph*>(handle);
}

cudaStreamCaptureStatus CaptureStatus(const Stream& stream) {
  if (stream.capture == nullptr) return cudaStreamCaptureStatusNone;
  return stream.capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
}

}  // namespace
}  // namespace gaccd::standin

using namespace gaccd::standin;  // NOLINT: the definitions below are the file's purpose

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(handle, __func__);
  if (stream.legacy) return Leave(cudaErrorStreamCaptureUnsupported);
  if (stream.capture != nullptr) return Leave(cudaErrorIllegalState);
  BeginCapture(stream, mode);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  *graph = nullptr;
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(handle, __func__);
  if (stream.capture == nullptr) return Leave(cudaErrorIllegalState);
  Graph* result = nullptr;
  if (const cudaError_t error = EndCapture(stream, &result); error != cudaSuccess) {
    return Leave(error);
  }
  CountGraphs(+1);
  *graph = reinterpret_cast<cudaGraph_t>(result);
  return cudaSuccess;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  const std::lock_guard lock(Lock());
  *status = CaptureStatus(GetStream(handle, __func__));
  return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  std::swap(*mode, ModeOfThisThread());
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, std::size_t* count) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if (graph != nullptr || dependencies != nullptr || edges != nullptr) {
    Fatal("cudaStreamGetCaptureInfo gives only status, id and number of dependencies here");
  }
  const std::lock_guard lock(Lock());
  const Stream& stream = GetStream(handle, __func__);
  *status = CaptureStatus(stream);
  if (stream.capture == nullptr) return cudaSuccess;
  if (id != nullptr) *id = stream.capture->id;
  if (count != nullptr) *count = stream.frontier.size();
  return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, std::size_t* count) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if (nodes != nullptr) Fatal("cudaGraphGetNodes gives only the number of nodes here");
  *count = ToGraph(graph).nodes.size();
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph,
                                 unsigned long long flags) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if (flags != 0) return Leave(cudaErrorInvalidValue);
  const std::lock_guard lock(Lock());
  *executable = reinterpret_cast<cudaGraphExec_t>(new ExecutableGraph(ToGraph(graph)));
  CountGraphs(+1);
  return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t /*executable*/, cudaStream_t handle) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  const std::lock_guard lock(Lock());
  (void)GetStream(handle, __func__);
  return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t handle) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(handle, __func__);
  if (stream.capture != nullptr) Fatal("a graph launched into a capture: gaccd does not do that");
  CountOne(Counting().graph_launches);
  ToExecutable(executable).Launch(stream);
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  const cudaError_t error = Enter(__func__);
  const std::lock_guard lock(Lock());
  delete &ToGraph(graph);
  CountGraphs(-1);
  return error;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  const cudaError_t error = Enter(__func__);
  delete &ToExecutable(executable);  // waits: without the lock
  const std::lock_guard lock(Lock());
  CountGraphs(-1);
  return error;
}
