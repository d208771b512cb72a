// BatchUploads: micro-batches on their way to the GPU, each copied while the ones before compute.
//
//   copy stream     | wait: slot is free | copy m      |                   | wait | copy m+2 ...
//   compute stream  | micro-step m-1     | wait: copied | micro-step m, slot free | ...
//
// There are two slots on the GPU, or more, so the copy of m waits for micro-step m-2. The host runs
// ahead, but only so far that the memory of a batch may be used again kHeld calls later.
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

  // Enqueues the copies of `batch` (samples >= 1) and makes compute() wait for them. Returns the
  // slot: the micro-step is to be enqueued next, then Release().
  Result<int> Upload(const BatchView& batch);
  // The same into a slot of the caller's choice, below CudaReplica::input_slots().
  Status UploadTo(int slot, const BatchView& batch);
  // After the micro-step was enqueued on compute().
  Status Release(int slot);

  // At the end of every call of MicroStep, also of one without samples: waits until the batch that
  // came kHeld calls before has been copied.
  Status NextCall();

  // The GPU has nothing to do: all micro-steps enqueued so far are over.
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
  std::vector<CudaEvent> free_;           // by slot: its last micro-step is over
  int slot_ = 0;                          // of the next batch
  std::array<CudaEvent, kCalls> copied_;  // by call, in turns
  std::array<bool, kCalls> pending_{};    // the call had samples
  int call_ = 0;
};

}  // namespace gaccd
