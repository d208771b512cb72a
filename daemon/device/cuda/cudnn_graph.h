// CudnnGraph: one attention or convolution described with cudnn-frontend, which only this class
// includes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "collectives/base/result.h"
#include "daemon/device/cuda/cudnn_api.h"
#include "daemon/device/cuda/dnn_library.h"

namespace gaccd {

// The device of a graph: the GPU of `handle`, or without a handle a GPU description, the JSON of
// CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, to query what cuDNN supports on that GPU.
struct CudnnTarget {
  cudnnHandle_t handle = nullptr;
  std::string device;
  int compute_capability = 0;  // 90 for an H100
};

class CudnnGraph {
 public:
  // Describes the operation and asks cuDNN for an engine. kUnavailable, with cuDNN's reason, if
  // there is none. `api` and the handle must outlive the graph.
  static Result<std::unique_ptr<CudnnGraph>> Create(const CudnnApi& api, const CudnnTarget& target,
                                                    const SdpaSpec& spec);
  static Result<std::unique_ptr<CudnnGraph>> Create(const CudnnApi& api, const CudnnTarget& target,
                                                    const ConvSpec& spec);
  ~CudnnGraph();

  // Compiles and loads the kernels; kUnavailable as above. Takes about a second.
  Status Compile();
  // REQUIRES: compiled.
  [[nodiscard]] std::int64_t workspace_bytes() const;
  // Enqueues the operation on the stream of the handle. Makes no CUDA runtime calls. REQUIRES:
  // `pointers` of the described operation.
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
