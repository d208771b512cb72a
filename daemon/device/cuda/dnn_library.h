// DnnLibrary: a library of attention and convolutions in 16 bits on one GPU. cuDNN is the one that
// training uses (cudnn_plan.h); tests put another one there.
#pragma once

#include <functional>
#include <memory>

#include "collectives/base/result.h"
#include "daemon/device/cuda/convolution.h"
#include "daemon/device/cuda/sdpa.h"

namespace gaccd {

class CudaContext;

// Outlived by its CudaContext, outlives its plans.
class DnnLibrary {
 public:
  virtual ~DnnLibrary() = default;
  // kUnavailable, with the library's reason, when it does not take this operation: then another
  // kernel has to. Other kinds are errors. Waits for the GPU, and for a moment needs memory for all
  // operands: the operation runs once, so that a later capture sees no surprise.
  virtual Result<std::unique_ptr<SdpaPlan>> Prepare(const SdpaSpec& spec) = 0;
  virtual Result<std::unique_ptr<ConvPlan>> Prepare(const ConvSpec& spec) = 0;
};

// Starts the library on the context's GPU. kUnavailable, with the reason, when it cannot be.
using DnnOpener = std::function<Result<std::unique_ptr<DnnLibrary>>(CudaContext& context)>;

}  // namespace gaccd
