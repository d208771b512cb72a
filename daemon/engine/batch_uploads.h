// BatchUploads: copies micro-batches to the GPU while previous micro-batches are computed.
//
//   copy stream     | wait: slot is free | copy m      |                   | wait | copy m+2 ...
//   compute stream  | micro-step m-1     | wait: copied | micro-step m, slot free | ...
//
// The GPU has two or more slots; with two, the copy of m waits for micro-step m-2. The host runs
// ahead, but waits so that the memory of a batch may be reused kHeld calls later.
#pragma once

#include <array>
#include <vector>

#include "collectives/base/cuda.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/engine/device_waiter.h"
#include "daemon/replica/replica_cuda.h"

namespace gaccd {

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

}  // namespace gaccd
