#include <cublasLt.h>
#include <cublas_api.h>
#include <cuda_runtime_api.h>
#include <cudnn_version.h>

#include <fstream>

#include "collectives/base/cuda.h"
#include "collectives/base/shared_library.h"
#include "collectives/base/strings.h"
#include "daemon/device/cuda/versions.h"

namespace gaccd {
namespace {

LibraryVersions Runtime() {
  LibraryVersions runtime{.name = "CUDA runtime", .compiled = CudaVersion(CUDART_VERSION)};
  int code = 0;
  const Status status = CudaStatus(cudaRuntimeGetVersion(&code), "version of the CUDA runtime");
  if (status.ok()) {
    runtime.loaded = CudaVersion(code);
  } else {
    runtime.detail = status.message();
  }
  return runtime;
}

// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06  ..."; empty if there is none.
std::string DriverText() {
  std::ifstream file("/proc/driver/nvidia/version");
  std::string line;
  std::getline(file, line);
  return line;
}

LibraryVersions Driver() {
  LibraryVersions driver{
      .name = "CUDA driver", .compiled = CudaVersion(CUDART_VERSION), .detail = DriverText()};
  int code = 0;  // stays 0, with success, if no driver is installed
  const Status status = CudaStatus(cudaDriverGetVersion(&code), "version of the CUDA driver");
  if (status.ok() && code > 0) {
    driver.loaded = CudaVersion(code);
  } else if (driver.detail.empty()) {
    driver.detail = status.ok() ? "no NVIDIA driver on this machine" : status.message();
  }
  return driver;
}

// symbol: the library's function that returns its version as one number.
LibraryVersions Library(const char* name, int compiled, const std::string& file,
                        const char* symbol) {
  LibraryVersions versions{.name = name, .compiled = DecodeVersion(compiled)};
  const Result<SharedLibrary> library = SharedLibrary::Open(file);
  if (!library.ok()) {
    versions.detail = library.status().message();
    return versions;
  }
  std::size_t (*version)() = nullptr;
  const Status found = library->Find(symbol, &version);
  if (found.ok()) {
    versions.loaded = DecodeVersion(static_cast<int>(version()));
  } else {
    versions.detail = found.message();
  }
  return versions;
}

}  // namespace

std::vector<LibraryVersions> CudaLibraries() {
  LibraryVersions cudnn =
      Library("cuDNN", CUDNN_VERSION, StrCat("libcudnn.so.", CUDNN_MAJOR), "cudnnGetVersion");
  cudnn.oldest = DecodeVersion(kOldestCudnn);
  return {Runtime(), Driver(),
          Library("cuBLASLt", CUBLAS_VERSION, StrCat("libcublasLt.so.", CUBLAS_VER_MAJOR),
                  "cublasLtGetVersion"),
          cudnn};
}

}  // namespace gaccd
