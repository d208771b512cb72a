// CudnnGraph: one attention or convolution as cuDNN wants it described, by cudnn-frontend; nothing
// else includes that.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cudnn_api.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

// Where the graph is to run: the GPU of `handle`, or, without a handle, a GPU that only exists as a
// description, the JSON of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION: that is for asking what cuDNN
// can do there.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  std::string device;
  int compute_capability = 0;  // 90 for an H100
};

class CudnnGraph {
 public:
  // Describes it, and asks cuDNN for an engine. kUnavailable, with cuDNN's reason, when there is
  // none. `api` and the handle outlive the graph.
  static Result<std::unique_ptr<CudnnGraph>> Create(const CudnnApi& api, const CudnnTarget& target,
                                                    const SdpaSpec& spec);
  static Result<std::unique_ptr<CudnnGraph>> Create(const CudnnApi& api, const CudnnTarget& target,
                                                    const ConvSpec& spec);
  ~CudnnGraph();

  // Compiles and loads the kernels; kUnavailable as above. Takes a second.
  Status Compile();
  // REQUIRES: compiled.
  [[nodiscard]] std::int64_t workspace_bytes() const;
  // Enqueues it on the stream of the handle. Calls nothing of the CUDA runtime. REQUIRES: pointers
  // of the operation that was described.
  Status Enqueue(const SdpaPointers& pointers, void* workspace);
  Status Enqueue(const ConvPointers& pointers, void* workspace);

 private:
  struct Parts;
  explicit CudnnGraph(std::unique_ptr<Parts> parts);
  static Result<std::unique_ptr<CudnnGraph>> Plan(const CudnnTarget& target,
                                                  std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace gaccd
