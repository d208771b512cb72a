#include "daemon/device/cuda/cuda_graph.h"

namespace gaccd {
namespace {

using OwnedGraph = CudaOwner<cudaGraph_t, cudaGraphDestroy>;

// Ends the capture also when the body throws.
class CaptureScope {
 public:
  explicit CaptureScope(cudaStream_t stream) : stream_(stream) {}
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;
  ~CaptureScope() {
    if (open_) Drop();
  }

  Result<OwnedGraph> End() {
    open_ = false;
    cudaGraph_t graph = nullptr;
    const cudaError_t error = cudaStreamEndCapture(stream_, &graph);
    OwnedGraph owned(graph);
    if (error != cudaSuccess) (void)cudaGetLastError();  // clear the error: it is reported here
    GACCD_RETURN_IF_ERROR(CudaStatus(error, "record a CUDA graph"));
    return owned;
  }

  void Drop() { (void)End(); }

 private:
  cudaStream_t stream_;
  bool open_ = true;
};

}  // namespace

Result<CudaGraph> CudaGraph::Capture(cudaStream_t stream, const std::function<Status()>& body) {
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                                   "begin to record a CUDA graph"));
  CaptureScope capture(stream);
  GACCD_RETURN_IF_ERROR(body());
  GACCD_ASSIGN_OR_RETURN(const OwnedGraph graph, capture.End());

  CudaGraph result;
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaGraphGetNodes(graph.get(), nullptr, &result.nodes_),
                                   "count the nodes of a CUDA graph"));
  cudaGraphExec_t exec = nullptr;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaGraphInstantiate(&exec, graph.get(), 0), "prepare a CUDA graph"));
  result.exec_.reset(exec);
  // Otherwise the first launch uploads the graph to the GPU, which takes milliseconds.
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaGraphUpload(exec, stream), "upload a CUDA graph"));
  return result;
}

Status CudaGraph::Launch(cudaStream_t stream) const {
  const cudaError_t error = cudaGraphLaunch(exec_.get(), stream);
  if (error != cudaSuccess) (void)cudaGetLastError();  // clear the error: it is reported here
  return CudaStatus(error, "launch a CUDA graph");
}

}  // namespace gaccd
