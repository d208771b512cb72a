// The CUDA runtime as values that own what they hold: errors as Status, streams, events, memory.
//
// Everything belongs to the device that is current when it is made (cudaSetDevice), and so does the
// thread that uses it. Destructors ignore errors: after a failed kernel every call fails.
// Only built with the CUDA Toolkit. Movable, not copyable, not thread-safe unless said.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string_view>

#include "collectives/base/buffer.h"
#include "collectives/base/result.h"

namespace gaccd {

// OK for cudaSuccess. Else "`what`: out of memory (cudaErrorMemoryAllocation)"; kOs when memory is
// short, kUnavailable for all others: the GPU or its driver is suspect.
Status CudaStatus(cudaError_t error, std::string_view what);

class CudaStream {
 public:
  enum class Priority { kNormal, kHigh };

  CudaStream() = default;
  static Result<CudaStream> Create(Priority priority = Priority::kNormal);
  CudaStream(CudaStream&& other) noexcept;
  CudaStream& operator=(CudaStream&& other) noexcept;
  ~CudaStream();

  [[nodiscard]] cudaStream_t get() const { return stream_; }
  [[nodiscard]] StreamHandle handle() const { return {stream_}; }

 private:
  cudaStream_t stream_ = nullptr;
};

class CudaEvent {
 public:
  enum class Kind { kOrder, kTiming };  // an event that takes the time costs a little more

  CudaEvent() = default;
  static Result<CudaEvent> Create(Kind kind = Kind::kOrder);
  CudaEvent(CudaEvent&& other) noexcept;
  CudaEvent& operator=(CudaEvent&& other) noexcept;
  ~CudaEvent();

  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

// Memory of the GPU, zeroed, aligned to at least 256 bytes.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // kOs, with the wanted and the free bytes, when it does not fit; `what` names it in the message.
  static Result<DeviceBuffer> Allocate(std::size_t bytes, std::string_view what);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

// Page-locked host memory, zeroed: what copies to and from the GPU without a stop.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  static Result<PinnedBuffer> Allocate(std::size_t bytes, std::string_view what);
  PinnedBuffer(PinnedBuffer&& other) noexcept;
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;
  ~PinnedBuffer();

  [[nodiscard]] void* data() const { return data_; }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace gaccd
