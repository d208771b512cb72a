// cuDNN, loaded when a graph wants it, so that the binary starts where it is not. Most of it is
// called by cudnn-frontend, which finds the functions in the library by itself.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <string>

#include "collectives/base/result.h"
#include "daemon/device/cuda/versions.h"

namespace gaccd {

struct CudnnApi {
  void* library;  // as dlopen() gives it
  decltype(&::cudnnCreate) Create;
  decltype(&::cudnnDestroy) Destroy;
  decltype(&::cudnnGetErrorString) GetErrorString;
  decltype(&::cudnnGetCudartVersion) GetCudartVersion;
  decltype(&::cudnnGetVersion) GetVersion;
  decltype(&::cudnnSetStream) SetStream;
};

// Loads libcudnn.so.9 (the major version compiled against) once; lives to the end of the process.
// kUnavailable: not found, a symbol is missing, or CheckCudnnVersion() refuses the version.
Result<const CudnnApi*> LoadCudnn();

// kUnavailable, naming both versions, when a library whose GetVersion() is `loaded` is older than
// kOldestCudnn or of another major version than gaccd was compiled with.
Status CheckCudnnVersion(std::size_t loaded);

// kUnavailable, naming it, when NVRTC is not found, with which cuDNN compiles kernels of attention
// at run time: that of the CUDA runtime of cuDNN (13000 for 13.0), by its name and where cuDNN's
// parts look for it. `folder`: cuDNN's.
Status CheckNvrtc(std::size_t cudart_version, const std::string& folder);
// Of the loaded cuDNN.
Status CheckNvrtc(const CudnnApi& api);

}  // namespace gaccd
