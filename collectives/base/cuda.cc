#include "collectives/base/cuda.h"

#include <cstring>
#include <utility>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status NoRoom(std::size_t bytes, std::string_view what) {
  std::size_t free = 0;
  std::size_t total = 0;
  (void)cudaGetLastError();  // this failure is told here, not by the next call
  (void)cudaMemGetInfo(&free, &total);
  return {ErrorKind::kOs, StrCat("no memory on the GPU for ", what, ": wanted ", bytes,
                                 " bytes, found ", free, " of ", total, " free")};
}

}  // namespace

Status CudaStatus(cudaError_t error, std::string_view what) {
  if (error == cudaSuccess) return Status::Ok();
  const bool memory = error == cudaErrorMemoryAllocation;
  return {memory ? ErrorKind::kOs : ErrorKind::kUnavailable,
          StrCat(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")")};
}

Result<CudaStream> CudaStream::Create(Priority priority) {
  int least = 0;
  int greatest = 0;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaDeviceGetStreamPriorityRange(&least, &greatest), "stream priorities"));
  CudaStream stream;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithPriority(&stream.stream_, cudaStreamNonBlocking,
                                              priority == Priority::kHigh ? greatest : least),
                 "make a stream"));
  return stream;
}

CudaStream::CudaStream(CudaStream&& other) noexcept
    : stream_(std::exchange(other.stream_, nullptr)) {}

CudaStream& CudaStream::operator=(CudaStream&& other) noexcept {
  std::swap(stream_, other.stream_);
  return *this;
}

CudaStream::~CudaStream() {
  if (stream_ != nullptr) (void)cudaStreamDestroy(stream_);
}

Result<CudaEvent> CudaEvent::Create(Kind kind) {
  CudaEvent event;
  const unsigned flags = kind == Kind::kTiming ? cudaEventDefault : cudaEventDisableTiming;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaEventCreateWithFlags(&event.event_, flags), "make an event"));
  return event;
}

CudaEvent::CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}

CudaEvent& CudaEvent::operator=(CudaEvent&& other) noexcept {
  std::swap(event_, other.event_);
  return *this;
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) (void)cudaEventDestroy(event_);
}

Result<DeviceBuffer> DeviceBuffer::Allocate(std::size_t bytes, std::string_view what) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  const cudaError_t error = cudaMalloc(&buffer.data_, bytes);
  if (error == cudaErrorMemoryAllocation) return NoRoom(bytes, what);
  GACCD_RETURN_IF_ERROR(CudaStatus(error, what));
  buffer.bytes_ = bytes;
  // The default stream does not order itself before non-blocking ones, so wait here.
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaMemset(buffer.data_, 0, bytes), what));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), what));
  return buffer;
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) (void)cudaFree(data_);
}

Result<PinnedBuffer> PinnedBuffer::Allocate(std::size_t bytes, std::string_view what) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaHostAlloc(&buffer.data_, bytes, cudaHostAllocDefault), what));
  buffer.bytes_ = bytes;
  std::memset(buffer.data_, 0, bytes);
  return buffer;
}

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) (void)cudaFreeHost(data_);
}

}  // namespace gaccd
