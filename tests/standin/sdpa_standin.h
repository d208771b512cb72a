// A stand-in of the library of attention and convolutions (daemon/device/cuda/dnn_library.h) on the
// stand-in of the CUDA runtime. It takes and refuses what cuDNN does, checks its operands, and is
// as unkind where that is allowed: NaN beyond the lengths and in the workspace.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <memory>
#include <string>

#include "daemon/device/cuda/dnn_library.h"

namespace gaccd::standin {

// conv_standin.cc: loops over the formula of daemon/ops/image/conv2d.h, sums in f64.
[[nodiscard]] std::unique_ptr<ConvPlan> MakeConvPlan(const ConvSpec& spec, cudaStream_t stream);

// A DnnFactory.
Result<std::unique_ptr<DnnLibrary>> OpenDnn(const CudaContext& context);

struct SdpaOptions {
  std::string does_not_start;  // the reason; empty: it does
  bool refuses_backward = false;
  bool refuses_convolutions = false;
};
// Also sets the counters to 0. Not to be called while attention runs.
void SetSdpa(const SdpaOptions& options = {});

struct SdpaCounters {
  std::int64_t plans = 0;          // of attention
  std::int64_t convolutions = 0;   // plans
  std::int64_t deterministic = 0;  // of the plans
  std::int64_t fp16 = 0;           // of the plans
  std::int64_t ran = 0;            // also in graphs
};
SdpaCounters CountSdpa();

}  // namespace gaccd::standin
