#include "collectives/base/cuda.h"
#include "daemon/device/cuda/device_memory.h"

namespace gaccd {

Status FitsOnGpu(const DeviceMemory& memory) {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory of the GPU"));
  return memory.Fits(static_cast<std::int64_t>(free_bytes), static_cast<std::int64_t>(total_bytes));
}

Result<std::int64_t> FreeOnGpu() {
  std::size_t free_bytes = 0;
  std::size_t total_bytes = 0;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaMemGetInfo(&free_bytes, &total_bytes), "free memory of the GPU"));
  return static_cast<std::int64_t>(free_bytes);
}

}  // namespace gaccd
