#include "collectives/base/cuda.h"

#include <cstring>

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status NoRoom(std::size_t bytes, std::string_view what) {
  std::size_t free = 0;
  std::size_t total = 0;
  (void)cudaGetLastError();  // clear the error, so that the next call does not report it
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
  cudaStream_t made = nullptr;
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithPriority(&made, cudaStreamNonBlocking,
                                              priority == Priority::kHigh ? greatest : least),
                 "make a stream"));
  CudaStream stream;
  stream.stream_.reset(made);
  return stream;
}

Result<CudaEvent> CudaEvent::Create(Kind kind) {
  const unsigned flags = kind == Kind::kTiming ? cudaEventDefault : cudaEventDisableTiming;
  cudaEvent_t made = nullptr;
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaEventCreateWithFlags(&made, flags), "make an event"));
  CudaEvent event;
  event.event_.reset(made);
  return event;
}

template <>
Result<DeviceBuffer> DeviceBuffer::Allocate(std::size_t bytes, std::string_view what) {
  DeviceBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) return NoRoom(bytes, what);
  GACCD_RETURN_IF_ERROR(CudaStatus(error, what));
  buffer.data_.reset(data);
  buffer.bytes_ = bytes;
  // The default stream does not order itself before non-blocking ones, so wait here.
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaMemset(data, 0, bytes), what));
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaDeviceSynchronize(), what));
  return buffer;
}

template <>
Result<PinnedBuffer> PinnedBuffer::Allocate(std::size_t bytes, std::string_view what) {
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  GACCD_RETURN_IF_ERROR(CudaStatus(cudaHostAlloc(&data, bytes, cudaHostAllocDefault), what));
  buffer.data_.reset(data);
  buffer.bytes_ = bytes;
  std::memset(data, 0, bytes);
  return buffer;
}

}  // namespace gaccd
