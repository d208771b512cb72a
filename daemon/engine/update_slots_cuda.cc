#include "daemon/engine/update_slots_cuda.h"

#include <new>

namespace gaccd {

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
