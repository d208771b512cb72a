// DnnLibrary: a library of attention and convolutions in 16 bits on one GPU. Training uses cuDNN
// (cudnn_plan.h); tests replace it.
#pragma once

#include <functional>
#include <memory>

#include "collectives/base/result.h"
#include "daemon/device/cuda/convolution.h"
#include "daemon/device/cuda/sdpa.h"

namespace gaccd {

class CudaContext;

// The CudaContext must outlive it, and it must outlive its plans.
class DnnLibrary {
 public:
  virtual ~DnnLibrary() = default;
  // kUnavailable, with the library's reason, if it does not support the operation: then another
  // kernel is needed. Other kinds are errors. Waits for the GPU, and temporarily needs memory for
  // all operands: the operation runs once, so that everything is loaded before a capture.
  virtual Result<std::unique_ptr<SdpaPlan>> Prepare(const SdpaSpec& spec) = 0;
  virtual Result<std::unique_ptr<ConvPlan>> Prepare(const ConvSpec& spec) = 0;
};

// Starts the library on the context's GPU. kUnavailable, with the reason, if that fails.
using DnnFactory = std::function<Result<std::unique_ptr<DnnLibrary>>(CudaContext& context)>;

}  // namespace gaccd
