// Copies between host and GPU during an update.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "collectives/base/cuda.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/device/cuda/device_memory.h"
#include "daemon/engine/backend.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/optim/update_control.h"
#include "daemon/replica/replica_cuda.h"

namespace gaccd {

// BatchUploads: copies micro-batches to the GPU while previous micro-batches are computed.
//
//   copy stream     | wait: slot is free | copy m      |                   | wait | copy m+2 ...
//   compute stream  | micro-step m-1     | wait: copied | micro-step m, slot free | ...
//
// The GPU has two or more slots; with two, the copy of m waits for micro-step m-2. The host runs
// ahead, but waits so that the memory of a batch may be reused kHeld calls later.
class BatchUploads {
 public:
  static constexpr int kHeld = 3;

  static Result<BatchUploads> Create(CudaContext& context, CudaReplica& replica,
                                     DeviceWaiter& waiter);

  // Enqueues the copy of `batch` (samples >= 1) and makes compute() wait for it. Returns the slot.
  // The caller enqueues the micro-step next, then calls Release().
  Result<int> Upload(const BatchView& batch);
  // Uploads into a slot chosen by the caller, below CudaReplica::input_slots().
  Status UploadTo(int slot, const BatchView& batch);
  // Call after the micro-step was enqueued on compute().
  Status Release(int slot);

  // Call at the end of every MicroStep, also without samples: waits until the batch of kHeld calls
  // ago has been copied.
  Status NextCall();

  // Whether all micro-steps enqueued so far have finished.
  Result<bool> Idle();

 private:
  static constexpr int kCalls = kHeld + 1;

  BatchUploads(CudaContext& context, CudaReplica& replica, DeviceWaiter& waiter)
      : context_(&context),
        replica_(&replica),
        waiter_(&waiter),
        free_(static_cast<std::size_t>(replica.input_slots())) {}

  CudaContext* context_;
  CudaReplica* replica_;
  DeviceWaiter* waiter_;
  std::vector<CudaEvent> free_;           // by slot: its last micro-step has finished
  int slot_ = 0;                          // slot of the next batch
  std::array<CudaEvent, kCalls> copied_;  // by call, a ring
  std::array<bool, kCalls> pending_{};    // by call: it had samples
  int call_ = 0;
};

// CudaSlots: the slots of the updates in flight. Each has a page of page-locked memory, from which
// the GPU copies its inputs and to which it copies its UpdateControl at the end, and events for
// timing. Reading the page of a finished update needs no GPU work.
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
