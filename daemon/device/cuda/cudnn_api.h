// cuDNN, loaded on demand, so that the binary starts without it. Most calls are made by
// cudnn-frontend, which looks up the functions in the library itself.
#pragma once

#include <cudnn_graph.h>

#include <cstddef>
#include <string>

#include "collectives/base/result.h"
#include "daemon/device/cuda/versions.h"

namespace gaccd {

struct CudnnApi {
  void* library;  // handle from dlopen()
  decltype(&::cudnnCreate) Create;
  decltype(&::cudnnDestroy) Destroy;
  decltype(&::cudnnGetErrorString) GetErrorString;
  decltype(&::cudnnGetCudartVersion) GetCudartVersion;
  decltype(&::cudnnGetVersion) GetVersion;
  decltype(&::cudnnSetStream) SetStream;
};

// Loads libcudnn.so.9 (the major version compiled against) once; never unloaded. kUnavailable: not
// found, a symbol is missing, or CheckCudnnVersion() fails.
Result<const CudnnApi*> LoadCudnn();

// kUnavailable, with both versions, if a library whose GetVersion() is `loaded` is older than
// kOldestCudnn or of another major version than gaccd was compiled with.
Status CheckCudnnVersion(std::size_t loaded);

// kUnavailable, with its name, if NVRTC is not found, which cuDNN uses to compile attention kernels
// at run time. The version is that of the CUDA runtime of cuDNN (13000 for 13.0); it is searched by
// name and where cuDNN's libraries search it. folder: cuDNN's.
Status CheckNvrtc(std::size_t cudart_version, const std::string& folder);
// CheckNvrtc() for the loaded cuDNN.
Status CheckNvrtc(const CudnnApi& api);

}  // namespace gaccd
