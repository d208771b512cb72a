// CudaMessageRing: one direction of messages to or from one neighbour stage of a pipeline, in GPU
// memory. It has its own stream, so that messages travel while others are computed. A ring of
// places is used in turn (replica/stage_messages.h). Streams wait; the host does not:
//
//   receive   ring: free[place] | receive | arrived[place]
//             compute: arrived[place] | kernels | free[place]
//   send      compute: sent[place] | copy | copied       ring: copied | send | sent[place]
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
  // A ring for this direction only: `link` has two ranks (ChainLinks).
  CudaMessageRing(std::unique_ptr<Communicator> link, cudaStream_t compute)
      : link_(std::move(link)), compute_(compute) {
    // A receive is enqueued, and waits for its sender, long before compute needs the message.
    link_->SetReader({compute});
  }

  // Call before the first message.
  Status CreateStream();
  Status Allocate(const MessageRing& size);
  // Call before Allocate(): transfers one element of any value, so that NCCL creates the
  // connection, which allocates memory and waits for the neighbour.
  Status ReceiveFirst(const MutableBuffer& value);
  Status SendFirst(const ConstBuffer& value);

  // Enqueues the receive of value.count elements into place `place`, which compute does not wait
  // for. Call in the order in which the neighbour sends.
  Status Post(const ConstBuffer& value, std::int64_t place);
  // Work enqueued on compute afterwards sees the message that was posted for the place, if any.
  Status Await(std::int64_t place);
  // Call after the last kernel that reads the place was enqueued on compute.
  Status Release(std::int64_t place);
  [[nodiscard]] const void* At(std::int64_t place) const {
    return memory_.as<std::byte>() + place * bytes_;
  }
  // The place of the message of a micro-batch.
  [[nodiscard]] std::int64_t RingPlace(std::int64_t micro_batch) const {
    return free_.empty() ? 0 : micro_batch % places();
  }

  // Enqueues a copy of the value that compute has produced so far, and the send.
  Status Send(const ConstBuffer& value);

  // The first error of enqueued work.
  Status Poll() { return link_->Poll(); }
  void CancelPending(const Status& error) { link_->CancelPending(error); }
  [[nodiscard]] cudaStream_t stream() const { return stream_.get(); }

 private:
  [[nodiscard]] std::int64_t places() const { return std::ssize(free_); }
  [[nodiscard]] int peer() const { return 1 - link_->rank(); }

  std::unique_ptr<Communicator> link_;
  cudaStream_t compute_;
  DeviceBuffer memory_;
  std::int64_t bytes_ = 0;          // per place
  std::vector<CudaEvent> free_;     // by place: all readers have finished, or the message was sent
  std::vector<CudaEvent> arrived_;  // by place; of a ring that receives
  CudaEvent copied_;                // the newest message is copied to its place
  std::int64_t next_ = 0;           // place of the next message to send
  CudaStream stream_;
};

}  // namespace gaccd
