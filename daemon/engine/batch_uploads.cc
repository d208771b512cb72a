#include "daemon/engine/batch_uploads.h"

namespace gaccd {

Result<BatchUploads> BatchUploads::Create(CudaContext& context, CudaReplica& replica,
                                          DeviceWaiter& waiter) {
  BatchUploads uploads(context, replica, waiter);
  for (CudaEvent& event : uploads.free_) {
    GACCD_ASSIGN_OR_RETURN(event, CudaEvent::Create());
  }
  for (CudaEvent& event : uploads.copied_) {
    GACCD_ASSIGN_OR_RETURN(event, CudaEvent::Create());
  }
  return uploads;
}

Result<int> BatchUploads::Upload(const BatchView& batch) {
  const int slot = slot_;
  slot_ = (slot_ + 1) % CudaReplica::kInputSlots;
  GACCD_RETURN_IF_ERROR(UploadTo(slot, batch));
  return slot;
}

Status BatchUploads::UploadTo(int slot, const BatchView& batch) {
  // An event that was never recorded counts as completed.
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaStreamWaitEvent(context_->copy(), free_[static_cast<std::size_t>(slot)].get(), 0),
      "wait for a free input slot"));
  GACCD_RETURN_IF_ERROR(replica_->Upload(batch, slot, context_->copy()));
  const CudaEvent& copied = copied_[static_cast<std::size_t>(call_)];
  GACCD_RETURN_IF_ERROR(
      CudaStatus(cudaEventRecord(copied.get(), context_->copy()), "mark of a copied batch"));
  pending_[static_cast<std::size_t>(call_)] = true;
  return CudaStatus(cudaStreamWaitEvent(context_->compute(), copied.get(), 0),
                    "wait for a copied batch");
}

Status BatchUploads::Release(int slot) {
  return CudaStatus(
      cudaEventRecord(free_[static_cast<std::size_t>(slot)].get(), context_->compute()),
      "mark of a free input slot");
}

Status BatchUploads::NextCall() {
  call_ = (call_ + 1) % kCalls;
  const auto oldest = static_cast<std::size_t>(call_);  // kHeld calls before; its turn is next
  if (!pending_[oldest]) return Status::Ok();
  pending_[oldest] = false;
  return waiter_->Wait(copied_[oldest], "copy of a micro-batch");
}

Result<bool> BatchUploads::Idle() {
  for (const CudaEvent& event : free_) {
    GACCD_ASSIGN_OR_RETURN(const bool over, waiter_->HasCompleted(event, "micro-step"));
    if (!over) return false;
  }
  return true;
}

}  // namespace gaccd
