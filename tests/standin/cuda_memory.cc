// Entry points of the CUDA runtime: memory and copies.
#include <cuda_runtime_api.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include "collectives/base/strings.h"
#include "tests/standin/capture.h"
#include "tests/standin/fatal.h"
#include "tests/standin/faults.h"
#include "tests/standin/runtime.h"

namespace gaccd::standin {
namespace {

// The first lines of a call that a capture would not see.
cudaError_t EnterUnsafe(const char* function) {
  if (const cudaError_t error = Enter(function); error != cudaSuccess) return error;
  const std::lock_guard lock(Lock());
  return Leave(CheckUnsafe());
}

cudaError_t GiveMemory(MemoryKind kind, void** pointer, std::size_t bytes) {
  CountOne(Counting().mallocs);
  *pointer = nullptr;
  if (bytes == 0) return cudaSuccess;
  const Allocation* allocation = Allocate(kind, CurrentDevice(), bytes, Machine().memory_bytes);
  if (allocation == nullptr) return Leave(cudaErrorMemoryAllocation);
  *pointer = allocation->base;
  return cudaSuccess;
}

// After a failure of the device memory is still taken back.
cudaError_t FreeMemory(MemoryKind kind, void* pointer, const char* function) {
  const cudaError_t error = EnterUnsafe(function);
  if (error == cudaErrorStreamCaptureUnsupported) return error;
  CountOne(Counting().frees);
  if (pointer != nullptr) Free(pointer, kind, function);
  return error;
}

struct Copy {
  void* to = nullptr;
  const void* from = nullptr;
  std::size_t to_pitch = 0;
  std::size_t from_pitch = 0;
  std::size_t width = 0;
  std::size_t height = 1;
};

std::size_t Span(std::size_t pitch, std::size_t width, std::size_t height) {
  return pitch * (height - 1) + width;
}

// One end of a copy: memory that the stand-in gave out, or ordinary host memory.
struct End {
  Allocation* allocation = nullptr;
  [[nodiscard]] bool device() const {
    return allocation != nullptr && allocation->kind == MemoryKind::kDevice;
  }
  [[nodiscard]] bool pageable() const { return allocation == nullptr; }
};

End FindEnd(const void* address, std::size_t bytes, const char* function) {
  End end{Find(address, bytes)};
  if (end.allocation != nullptr) CheckLive(*end.allocation, function);
  return end;
}

bool Fits(cudaMemcpyKind kind, const End& to, const End& from) {
  switch (kind) {
    case cudaMemcpyDefault:
      return true;
    case cudaMemcpyHostToHost:
      return !to.device() && !from.device();
    case cudaMemcpyHostToDevice:
      return to.device() && !from.device();
    case cudaMemcpyDeviceToHost:
      return !to.device() && from.device();
    case cudaMemcpyDeviceToDevice:
      return to.device() && from.device();
  }
  return false;
}

void CopyRows(const Copy& copy) {
  for (std::size_t row = 0; row < copy.height; ++row) {
    std::memcpy(static_cast<std::byte*>(copy.to) + row * copy.to_pitch,
                static_cast<const std::byte*>(copy.from) + row * copy.from_pitch, copy.width);
  }
}

// Ordinary host memory is read before the call returns, so that the caller may change it.
std::function<void()> MakeCopyWork(const Copy& copy, bool read_now) {
  if (!read_now) return [copy] { CopyRows(copy); };
  auto kept = std::make_shared<std::vector<std::byte>>(copy.width * copy.height);
  CopyRows({kept->data(), copy.from, copy.width, copy.from_pitch, copy.width, copy.height});
  return [copy, kept] {
    CopyRows({copy.to, kept->data(), copy.to_pitch, copy.width, copy.width, copy.height});
  };
}

// `point`: what the host must wait for; null when it need not.
cudaError_t SubmitCopy(const Copy& copy, cudaMemcpyKind kind, cudaStream_t handle, bool wait,
                       const char* function, Point** point) {
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(handle, function);
  const End to = FindEnd(copy.to, Span(copy.to_pitch, copy.width, copy.height), function);
  const End from = FindEnd(copy.from, Span(copy.from_pitch, copy.width, copy.height), function);
  if (!Fits(kind, to, from)) {
    std::fprintf(stderr, "stand-in GPU: %s: the memory is not of the kind that is named\n",
                 function);
    return cudaErrorInvalidValue;
  }
  const bool pageable = to.pageable() || from.pageable();
  if (pageable && stream.capture != nullptr) {
    return Invalidate(*stream.capture, cudaErrorStreamCaptureUnsupported);
  }
  Work work;
  work.what = function;
  for (const End& end : {to, from}) {
    if (!end.pageable()) work.touches.push_back(end.allocation);
  }
  work.run = MakeCopyWork(copy, from.pageable());
  CountOne(Counting().copies);
  const cudaError_t error = Submit(stream, std::move(work), NodeType::kCopy);
  if (from.pageable()) CountOne(Counting().host_waits);  // the real one waits for a staging buffer
  const bool on_device = to.device() && from.device();
  if (error == cudaSuccess && ((wait && !on_device) || to.pageable())) *point = Mark(stream);
  return error;
}

cudaError_t DoCopy(const Copy& copy, cudaMemcpyKind kind, cudaStream_t stream, bool wait,
                   const char* function) {
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  Point* point = nullptr;
  const cudaError_t error = SubmitCopy(copy, kind, stream, wait, function, &point);
  if (point != nullptr) WaitOnHost(point);
  return Leave(error != cudaSuccess ? error : DeviceError(CurrentDevice()));
}

// Zeros of much memory, as of workspaces, are new pages: they cost time where they are touched.
void SetBytes(const Allocation& allocation, void* to, int value, std::size_t bytes) {
  constexpr std::size_t kPage = 4096;
  constexpr std::size_t kMuch = std::size_t{4} << 20;
  if (value != 0 || bytes < kMuch || allocation.kind == MemoryKind::kRegistered) {
    std::memset(to, value, bytes);
    return;
  }
  const auto first = reinterpret_cast<std::uintptr_t>(to);
  const std::uintptr_t begin = (first + kPage - 1) / kPage * kPage;
  const std::uintptr_t end = (first + bytes) / kPage * kPage;
  if (madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED) != 0) {
    Fatal("madvise of memory to be zeroed failed");
  }
  std::memset(to, 0, begin - first);
  std::memset(reinterpret_cast<void*>(end), 0, first + bytes - end);
}

cudaError_t Fill(void* to, int value, std::size_t bytes, cudaStream_t handle,
                 const char* function) {
  if (bytes == 0) return cudaSuccess;
  const std::lock_guard lock(Lock());
  Stream& stream = GetStream(handle, function);
  const End end = FindEnd(to, bytes, function);
  if (end.pageable()) {
    std::fprintf(stderr, "stand-in GPU: %s of ordinary host memory\n", function);
    return Leave(cudaErrorInvalidValue);
  }
  Work work;
  work.what = function;
  work.touches = {end.allocation};
  work.run = [to, value, bytes, allocation = end.allocation] {
    SetBytes(*allocation, to, value, bytes);
  };
  CountOne(Counting().copies);
  return Leave(Submit(stream, std::move(work), NodeType::kCopy));
}

}  // namespace
}  // namespace gaccd::standin

using namespace gaccd::standin;  // NOLINT: the definitions below are the file's purpose

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  if (const cudaError_t error = EnterUnsafe(__func__); error != cudaSuccess) return error;
  return GiveMemory(MemoryKind::kDevice, pointer, bytes);
}

cudaError_t cudaFree(void* pointer) { return FreeMemory(MemoryKind::kDevice, pointer, __func__); }

cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned flags) {
  if (const cudaError_t error = EnterUnsafe(__func__); error != cudaSuccess) return error;
  constexpr unsigned kKnown =
      cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;
  if ((flags & ~kKnown) != 0) return Leave(cudaErrorInvalidValue);
  return GiveMemory(MemoryKind::kPinned, pointer, bytes);
}

cudaError_t cudaMallocHost(void** pointer, std::size_t bytes) {
  if (const cudaError_t error = EnterUnsafe(__func__); error != cudaSuccess) return error;
  return GiveMemory(MemoryKind::kPinned, pointer, bytes);
}

cudaError_t cudaFreeHost(void* pointer) {
  return FreeMemory(MemoryKind::kPinned, pointer, __func__);
}

cudaError_t cudaHostRegister(void* pointer, std::size_t bytes, unsigned flags) {
  if (const cudaError_t error = EnterUnsafe(__func__); error != cudaSuccess) return error;
  constexpr unsigned kKnown = cudaHostRegisterPortable | cudaHostRegisterMapped;
  if (pointer == nullptr || bytes == 0 || (flags & ~kKnown) != 0) {
    return Leave(cudaErrorInvalidValue);
  }
  CountOne(Counting().mallocs);
  if (Register(pointer, bytes) == nullptr) return Leave(cudaErrorHostMemoryAlreadyRegistered);
  return cudaSuccess;
}

cudaError_t cudaHostUnregister(void* pointer) {
  return FreeMemory(MemoryKind::kRegistered, pointer, __func__);
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* pointer) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  *attributes = cudaPointerAttributes{};
  const Allocation* allocation = Find(pointer, 1);
  if (allocation == nullptr || !allocation->live.load(std::memory_order_relaxed)) {
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;  // cudaInvalidDeviceId
    return cudaSuccess;
  }
  const bool device = allocation->kind == MemoryKind::kDevice;
  attributes->type = device ? cudaMemoryTypeDevice : cudaMemoryTypeHost;
  attributes->device = allocation->device;
  attributes->devicePointer = const_cast<void*>(pointer);
  attributes->hostPointer = device ? nullptr : const_cast<void*>(pointer);
  return cudaSuccess;
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  if (const cudaError_t error = EnterUnsafe(__func__); error != cudaSuccess) return error;
  return DoCopy({to, from, bytes, bytes, bytes, 1}, kind, nullptr, true, __func__);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  return DoCopy({to, from, bytes, bytes, bytes, 1}, kind, stream, false, __func__);
}

cudaError_t cudaMemcpy2DAsync(void* to, std::size_t to_pitch, const void* from,
                              std::size_t from_pitch, std::size_t width, std::size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  if (width > to_pitch || width > from_pitch) return Leave(cudaErrorInvalidPitchValue);
  return DoCopy({to, from, to_pitch, from_pitch, width, height}, kind, stream, false, __func__);
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  if (const cudaError_t error = EnterUnsafe(__func__); error != cudaSuccess) return error;
  return Fill(to, value, bytes, nullptr, __func__);
}

cudaError_t cudaMemset2DAsync(void* to, std::size_t pitch, int value, std::size_t width,
                              std::size_t height, cudaStream_t stream) {
  for (std::size_t row = 0; row < height; ++row) {
    const cudaError_t error =
        cudaMemsetAsync(static_cast<std::byte*>(to) + row * pitch, value, width, stream);
    if (error != cudaSuccess) return error;
  }
  return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = Enter(__func__); error != cudaSuccess) return error;
  return Fill(to, value, bytes, stream, __func__);
}
