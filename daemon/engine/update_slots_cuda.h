// CudaSlots: the slots of the updates in flight. Each has a page of page-locked memory, from which
// the GPU copies its inputs and to which it copies its UpdateControl at the end, and events for
// timing. Reading the page of a finished update needs no GPU work.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/base/cuda.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/backend.h"
#include "daemon/optim/update_control.h"

namespace gaccd {

class CudaSlots {
 public:
  static Result<CudaSlots> Create(std::size_t control_word_count);

  [[nodiscard]] UpdateSlot Slot(std::size_t index) const;
  [[nodiscard]] const CudaEvent& event(const UpdateSlot& slot, UpdateMark mark) const {
    return events_[slot.index][static_cast<std::size_t>(mark)];
  }
  Status Mark(const UpdateSlot& slot, UpdateMark mark, cudaStream_t stream) const;
  Result<double> Seconds(const UpdateSlot& slot, UpdateMark from, UpdateMark to) const;

  // Enqueues a copy of the inputs to `control`, or of the control words to the memory after it.
  static Status SendInputs(const UpdateSlot& slot, UpdateControl* control, cudaStream_t stream);
  static Status SendControlWords(const UpdateSlot& slot, UpdateControl* control,
                                 cudaStream_t stream);
  // Enqueues a copy of `control` and its control words to the page.
  Status Fetch(const UpdateSlot& slot, const UpdateControl* control, cudaStream_t stream) const;

  // Bytes of page-locked memory.
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(pages_.bytes()); }

 private:
  [[nodiscard]] std::size_t page_bytes() const {
    return sizeof(UpdateControl) + control_word_count_ * sizeof(double);
  }

  std::size_t control_word_count_ = 0;
  PinnedBuffer pages_;
  std::array<std::array<CudaEvent, 4>, Backend::kSlots> events_;  // by mark
};

}  // namespace gaccd
