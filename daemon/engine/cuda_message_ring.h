// CudaMessageRing: one direction of messages with one neighbour in a pipeline, in the memory of
// this GPU, on a stream of its own, so that they travel while others are computed. Places are used
// in turns (replica/stage_messages.h); all that is waited for is waited for by streams:
//
//   received   ring: free[place] | receive | arrived      compute: arrived | kernels | free[place]
//   sent       compute: left[place] | copy | made         ring: made | send | left[place]
//
// Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/comm/communicator.h"
#include "daemon/replica/stage_messages.h"

namespace gaccd {

class CudaMessageRing {
 public:
  // A ring of this direction alone: `link` has two ranks (ChainLinks).
  CudaMessageRing(std::unique_ptr<Communicator> link, cudaStream_t compute)
      : link_(std::move(link)), compute_(compute) {}

  // Before the first message.
  Status CreateStream();
  Status Allocate(const MessageRing& size);
  // Before Allocate(): one element comes or goes, whatever it is, so that NCCL has made the
  // connection, which takes memory and waits for the neighbour.
  Status ReceiveFirst(const MutableBuffer& value);
  Status SendFirst(const ConstBuffer& value);

  // Enqueues the receive of as many elements as `value` has, into a place below the ring's; what is
  // enqueued on compute from now on finds them. Returns the memory.
  Result<const void*> Receive(const ConstBuffer& value, std::int64_t place);
  // After the last kernel that reads it was enqueued on compute.
  Status Release(std::int64_t place);
  [[nodiscard]] const void* At(std::int64_t place) const {
    return memory_.as<std::byte>() + place * bytes_;
  }
  // Of the message of a micro-batch.
  [[nodiscard]] std::int64_t PlaceOf(std::int64_t micro_batch) const {
    return free_.empty() ? 0 : micro_batch % places();
  }

  // Enqueues a copy of what compute has made so far, and its sending.
  Status Send(const ConstBuffer& value);

  // The first error of what was enqueued.
  Status Poll() { return link_->Poll(); }
  void GiveUp(const Status& error) { link_->GiveUp(error); }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

 private:
  [[nodiscard]] std::int64_t places() const { return std::ssize(free_); }
  [[nodiscard]] int peer() const { return 1 - link_->rank(); }

  std::unique_ptr<Communicator> link_;
  cudaStream_t compute_;
  DeviceBuffer memory_;
  std::int64_t bytes_ = 0;       // of a place
  std::vector<CudaEvent> free_;  // by place: nobody reads it any more, or it has left
  CudaEvent ready_;              // the newest: it has arrived, or is made
  std::int64_t next_ = 0;        // place of the next sent one
  CudaStream stream_;
};

}  // namespace gaccd
