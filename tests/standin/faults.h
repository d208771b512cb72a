// What calls begin and end with: is there a driver, shall this call fail, has the device failed;
// the error that cudaGetLastError() tells; the counters.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "tests/standin/standin.h"

namespace gaccd::standin {

inline constexpr int kMaxDevices = 64;

struct AtomicCounters {
  std::atomic<std::int64_t> host_waits{0}, mallocs{0}, frees{0}, kernels{0}, copies{0},
      graph_launches{0}, graph_nodes{0}, queries{0};
};
AtomicCounters& Counting();
inline void CountOne(std::atomic<std::int64_t>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
}

const Options& Machine();
int& CurrentDevice();  // of the calling thread

// The first line of every call: what it must return at once, or cudaSuccess.
[[nodiscard]] cudaError_t Enter(const char* function);
// The last line of every call: remembers an error for cudaGetLastError().
cudaError_t Leave(cudaError_t error);
cudaError_t TakeLastError(bool keep);

bool DeviceFailed(int device);
cudaError_t DeviceError(int device);
bool KernelFails(int device);  // counts one kernel that runs

// While one lives, this thread runs a host function: calls of CUDA are forbidden.
class HostFunctionScope {
 public:
  HostFunctionScope();
  ~HostFunctionScope();
};

}  // namespace gaccd::standin
