#include "daemon/engine/cuda_message_ring.h"

#include "collectives/base/strings.h"

namespace gaccd {
namespace {

Status WaitFor(const CudaEvent& event, cudaStream_t stream) {
  return CudaStatus(cudaStreamWaitEvent(stream, event.get(), 0), "wait for a message");
}

Status Record(const CudaEvent& event, cudaStream_t stream) {
  return CudaStatus(cudaEventRecord(event.get(), stream), "mark of a message");
}

}  // namespace

Status CudaMessageRing::CreateStream() {
  // High priority: a neighbour waits for this copy, which takes much less time than its kernels.
  GACCD_ASSIGN_OR_RETURN(stream_, CudaStream::Create(CudaStream::Priority::kHigh));
  GACCD_ASSIGN_OR_RETURN(copied_, CudaEvent::Create());
  return Status::Ok();
}

Status CudaMessageRing::Allocate(const MessageRing& size) {
  bytes_ = size.bytes;
  GACCD_ASSIGN_OR_RETURN(
      memory_,
      DeviceBuffer::Allocate(static_cast<std::size_t>(size.places * size.bytes), "messages"));
  for (std::vector<CudaEvent>* events : {&free_, &arrived_}) {
    events->resize(static_cast<std::size_t>(size.places));
    for (CudaEvent& event : *events) {
      GACCD_ASSIGN_OR_RETURN(event, CudaEvent::Create());
    }
  }
  return Status::Ok();
}

Status CudaMessageRing::ReceiveFirst(const MutableBuffer& value) {
  return link_->Receive(value, peer(), stream_.handle());
}

Status CudaMessageRing::SendFirst(const ConstBuffer& value) {
  return link_->Send(value, peer(), stream_.handle());
}

Status CudaMessageRing::Post(const ConstBuffer& value, std::int64_t place) {
  if (place < 0 || place >= places() || static_cast<std::int64_t>(value.bytes()) > bytes_) {
    return {ErrorKind::kInternal,
            StrCat("message: expected at most ", bytes_, " bytes in a place below ", places(),
                   ", found ", value.bytes(), " in ", place)};
  }
  void* const memory = memory_.as<std::byte>() + place * bytes_;
  // An event that was never recorded counts as completed.
  GACCD_RETURN_IF_ERROR(WaitFor(free_[static_cast<std::size_t>(place)], stream_.get()));
  GACCD_RETURN_IF_ERROR(link_->Receive({memory, value.count, value.dtype, MemoryKind::kCuda},
                                       peer(), stream_.handle()));
  return Record(arrived_[static_cast<std::size_t>(place)], stream_.get());
}

Status CudaMessageRing::Await(std::int64_t place) {
  if (places() == 0) return Status::Ok();
  return WaitFor(arrived_[static_cast<std::size_t>(place)], compute_);
}

Status CudaMessageRing::Release(std::int64_t place) {
  return Record(free_[static_cast<std::size_t>(place)], compute_);
}

Status CudaMessageRing::Send(const ConstBuffer& value) {
  if (places() == 0 || static_cast<std::int64_t>(value.bytes()) > bytes_) {
    return {ErrorKind::kInternal,
            StrCat("message: expected at most ", bytes_, " bytes, found ", value.bytes())};
  }
  const std::int64_t place = next_;
  next_ = (next_ + 1) % places();
  void* const memory = memory_.as<std::byte>() + place * bytes_;
  const CudaEvent& left = free_[static_cast<std::size_t>(place)];
  GACCD_RETURN_IF_ERROR(WaitFor(left, compute_));
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaMemcpyAsync(memory, value.data, value.bytes(), cudaMemcpyDeviceToDevice, compute_),
      "copy of a message"));
  GACCD_RETURN_IF_ERROR(Record(copied_, compute_));
  GACCD_RETURN_IF_ERROR(WaitFor(copied_, stream_.get()));
  GACCD_RETURN_IF_ERROR(
      link_->Send({memory, value.count, value.dtype, MemoryKind::kCuda}, peer(), stream_.handle()));
  return Record(left, stream_.get());
}

}  // namespace gaccd
