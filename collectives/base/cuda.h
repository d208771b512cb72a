// RAII wrappers of the CUDA runtime: errors as Status, streams, events, memory.
//
// Objects belong to the device that is current when they are created (cudaSetDevice) and must be
// used by threads with the same current device. Destructors ignore errors: after a failed kernel
// every call fails. Only built with the CUDA Toolkit. Movable, not copyable, not thread-safe unless
// stated otherwise.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <string_view>
#include <type_traits>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"

namespace gaccd {

// OK for cudaSuccess. Otherwise "`what`: out of memory (cudaErrorMemoryAllocation)"; kOs if memory
// is short, kUnavailable for all others, which suggest a problem of the GPU or its driver.
Status CudaStatus(cudaError_t error, std::string_view what);

// Deleter that calls kRelease, a CUDA function.
template <auto kRelease>
struct CudaRelease {
  template <typename T>
  void operator()(T* owned) const {
    (void)kRelease(owned);
  }
};
template <typename Handle, auto kRelease>
using CudaOwner = std::unique_ptr<std::remove_pointer_t<Handle>, CudaRelease<kRelease>>;

class CudaStream {
 public:
  enum class Priority { kNormal, kHigh };

  CudaStream() = default;
  static Result<CudaStream> Create(Priority priority = Priority::kNormal);

  [[nodiscard]] cudaStream_t get() const { return stream_.get(); }
  [[nodiscard]] StreamHandle handle() const { return {stream_.get()}; }

 private:
  CudaOwner<cudaStream_t, cudaStreamDestroy> stream_;
};

class CudaEvent {
 public:
  enum class Kind { kOrder, kTiming };  // timing events cost slightly more

  CudaEvent() = default;
  static Result<CudaEvent> Create(Kind kind = Kind::kOrder);

  [[nodiscard]] cudaEvent_t get() const { return event_.get(); }

 private:
  CudaOwner<cudaEvent_t, cudaEventDestroy> event_;
};

// Zeroed memory allocated by CUDA and released by kRelease.
template <auto kRelease>
class CudaBuffer {
 public:
  CudaBuffer() = default;
  // kOs if memory is short; for device memory with the requested and the free bytes. `what` names
  // the buffer in the message.
  static Result<CudaBuffer> Allocate(std::size_t bytes, std::string_view what);

  [[nodiscard]] void* data() const { return data_.get(); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data());
  }

 private:
  CudaOwner<void*, kRelease> data_;
  std::size_t bytes_ = 0;
};

// GPU memory, aligned to at least 256 bytes.
using DeviceBuffer = CudaBuffer<cudaFree>;
template <>
Result<DeviceBuffer> DeviceBuffer::Allocate(std::size_t bytes, std::string_view what);

// Page-locked host memory, from and to which copies are asynchronous.
using PinnedBuffer = CudaBuffer<cudaFreeHost>;
template <>
Result<PinnedBuffer> PinnedBuffer::Allocate(std::size_t bytes, std::string_view what);

}  // namespace gaccd
