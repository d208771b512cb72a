#include "daemon/engine/transfers_cuda.h"

#include <new>

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

Result<CudaSlots> CudaSlots::Create(std::size_t control_word_count) {
  CudaSlots slots;
  slots.control_word_count_ = control_word_count;
  GACCD_ASSIGN_OR_RETURN(slots.pages_, PinnedBuffer::Allocate(Backend::kSlots * slots.page_bytes(),
                                                              "records of updates"));
  for (std::size_t i = 0; i < Backend::kSlots; ++i) {
    new (slots.pages_.as<std::byte>() + i * slots.page_bytes()) UpdateControl;
    for (CudaEvent& event : slots.events_[i]) {
      GACCD_ASSIGN_OR_RETURN(event, CudaEvent::Create(CudaEvent::Kind::kTiming));
    }
  }
  return slots;
}

UpdateSlot CudaSlots::Slot(std::size_t index) const {
  std::byte* const page = pages_.as<std::byte>() + index * page_bytes();
  return {.index = index,
          .page = reinterpret_cast<UpdateControl*>(page),
          .control_words = {reinterpret_cast<double*>(page + sizeof(UpdateControl)),
                            control_word_count_}};
}

Status CudaSlots::Mark(const UpdateSlot& slot, UpdateMark mark, cudaStream_t stream) const {
  return CudaStatus(cudaEventRecord(event(slot, mark).get(), stream), "mark of a phase");
}

Result<double> CudaSlots::Seconds(const UpdateSlot& slot, UpdateMark from, UpdateMark to) const {
  float milliseconds = 0;
  GACCD_RETURN_IF_ERROR(CudaStatus(
      cudaEventElapsedTime(&milliseconds, event(slot, from).get(), event(slot, to).get()),
      "time of an update"));
  return static_cast<double>(milliseconds) / 1000;
}

Status CudaSlots::SendInputs(const UpdateSlot& slot, UpdateControl* control, cudaStream_t stream) {
  return CudaStatus(cudaMemcpyAsync(&control->inputs, &slot.page->inputs, sizeof(UpdateInputs),
                                    cudaMemcpyHostToDevice, stream),
                    "copy of an update's settings");
}

Status CudaSlots::SendControlWords(const UpdateSlot& slot, UpdateControl* control,
                                   cudaStream_t stream) {
  if (slot.control_words.empty()) return Status::Ok();
  return CudaStatus(
      cudaMemcpyAsync(control + 1, slot.control_words.data(), slot.control_words.size_bytes(),
                      cudaMemcpyHostToDevice, stream),
      "copy of an update's control words");
}

Status CudaSlots::Fetch(const UpdateSlot& slot, const UpdateControl* control,
                        cudaStream_t stream) const {
  return CudaStatus(
      cudaMemcpyAsync(slot.page, control, page_bytes(), cudaMemcpyDeviceToHost, stream),
      "copy of an update's result");
}

}  // namespace gaccd
