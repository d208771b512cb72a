// Kernels and libraries' work on a stream.
#include <chrono>
#include <thread>
#include <utility>

#include "collectives/base/strings.h"
#include "tests/standin/fatal.h"
#include "tests/standin/faults.h"
#include "tests/standin/runtime.h"
#include "tests/standin/settings.h"
#include "tests/standin/simt.h"
#include "tests/standin/standin.h"

namespace gaccd::standin {
namespace {

// The memory of one piece of work; stops the process where it is not the device's to use.
Allocation* Usable(const Touches& touches, int device, const char* what) {
  Allocation* allocation = Find(touches.address, touches.bytes);
  if (allocation == nullptr) {
    Fatal(StrCat("'", what, "' gets ordinary host memory, ", touches.address));
  }
  CheckLive(*allocation, what);
  if (allocation->kind == MemoryKind::kDevice && allocation->device != device) {
    Fatal(StrCat("'", what, "' runs on device ", device, " and gets memory of device ",
                 allocation->device));
  }
  return allocation;
}

cudaError_t EnqueueWork(cudaStream_t handle, Work work, const std::vector<Touches>& touches) {
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(handle, work.what);
  if (stream.device != CurrentDevice()) return cudaErrorInvalidResourceHandle;
  for (const Touches& touched : touches) {
    if (touched.address == nullptr) continue;
    work.touches.push_back(Usable(touched, stream.device, work.what));
  }
  return Submit(stream, std::move(work), NodeType::kKernel);
}

}  // namespace

cudaError_t Enqueue(cudaStream_t stream, const char* what, std::function<void()> run,
                    const std::vector<Touches>& touches) {
  if (const cudaError_t error = Enter("kernel"); error != cudaSuccess) return error;
  Work work;
  work.what = what;
  work.kernel = true;
  work.run = std::move(run);
  CountOne(Counting().kernels);
  return Leave(EnqueueWork(stream, std::move(work), touches));
}

void WaitForPlace(cudaStream_t handle, const char* what) {
  for (;;) {
    {
      const std::lock_guard lock(Lock());
      const Stream& stream = GetStream(handle, what);
      if (stream.capture != nullptr || stream.worker == nullptr ||
          stream.worker->pending() < static_cast<std::uint32_t>(MaxPending())) {
        return;
      }
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

bool IsDeviceMemory(const void* address, std::size_t bytes) {
  const Allocation* allocation = Find(address, bytes);
  return allocation != nullptr && allocation->kind == MemoryKind::kDevice &&
         allocation->device == CurrentDevice() && allocation->live.load(std::memory_order_relaxed);
}

}  // namespace gaccd::standin

namespace gaccd::simt {

void Enqueue(cudaStream_t stream, unsigned blocks, unsigned threads, const char* what,
             std::function<void()> kernel, std::initializer_list<const void*> pointers) {
  std::vector<standin::Touches> touches;
  for (const void* pointer : pointers) touches.push_back({pointer, 0});
  constexpr unsigned kMaxBlocks = 0x7fffffff;  // of the first dimension of a grid
  if (threads == 0 || threads > 1024 || blocks == 0 || blocks > kMaxBlocks) {
    (void)standin::Leave(cudaErrorInvalidConfiguration);
    return;
  }
  standin::WaitForPlace(stream, what);
  (void)standin::Enqueue(
      stream, what,
      [kernel = std::move(kernel), blocks, threads, what] { Run(kernel, blocks, threads, what); },
      touches);
}

}  // namespace gaccd::simt
