// main() of the tests that need a real GPU: without one they are skipped, and CTest says so. With
// GACCD_GPU_REQUIRED=1 that is a failure.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "daemon/device/cuda/dnn_library.h"
#include "tests/gpu/gpu_test.h"
#include "tests/sources.h"

namespace gaccd {
const CublasLtApi* CublasLtOfTest() { return nullptr; }
const NcclApi* NcclOfTest() { return nullptr; }
Result<DnnFactory> DnnOfTest() { return FindCudnn(); }
}  // namespace gaccd

namespace {
constexpr int kSkipped = 77;  // CTest's SKIP_RETURN_CODE
}

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!gaccd::tests::KeepSources(argc, argv)) return 64;
  if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
  int gpus = 0;
  const cudaError_t error = cudaGetDeviceCount(&gpus);
  if (error != cudaSuccess || gpus == 0) {
    std::printf("skipped: no GPU on this machine (%s)\n",
                error == cudaSuccess ? "the driver shows none" : cudaGetErrorString(error));
    const char* required = std::getenv("GACCD_GPU_REQUIRED");
    return required != nullptr && std::string_view(required) == "1" ? 1 : kSkipped;
  }
  return RUN_ALL_TESTS();
}
