#include <chrono>
#include <thread>

#include "daemon/device/cuda/launch.h"
#include "tests/gpu/contact/kernels.h"

namespace gaccd {
namespace {

constexpr LaunchShape kOneWarp{1, 32};

__global__ void SpinKernel(std::int64_t nanoseconds) {
#if defined(GACCD_SIMT_EMULATION)
  if (threadIdx.x == 0) std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
#elif defined(__CUDA_ARCH__)
  const auto now = [] {
    std::int64_t time;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
  };
  const std::int64_t end = now() + nanoseconds;
  while (now() < end) {
  }
#endif
}

__global__ void AddKernel(std::int32_t* value, std::int32_t addend) {
  if (threadIdx.x == 0) *value += addend;
}

__global__ void FirstInCaptureKernel(std::int32_t* value) {
  if (threadIdx.x == 0) *value = 7;
}

}  // namespace

Status EnqueueSpin(cudaStream_t stream, std::int64_t nanoseconds) {
  return Launch(SpinKernel, kOneWarp, stream, "spin", nanoseconds);
}

Status EnqueueAdd(cudaStream_t stream, std::int32_t* value, std::int32_t addend) {
  return Launch(AddKernel, kOneWarp, stream, "add", value, addend);
}

Status EnqueueFirstInCapture(cudaStream_t stream, std::int32_t* value) {
  return Launch(FirstInCaptureKernel, kOneWarp, stream, "first in a capture", value);
}

}  // namespace gaccd
