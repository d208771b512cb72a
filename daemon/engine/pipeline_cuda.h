// CudaPipeline: communication of a pipeline stage on a GPU with the other stages
// (PipelineExchange). Everything is enqueued; the host does not wait inside an update. Messages
// have a communicator and a stream per direction and neighbour (collectives/comm/chain_links.h).
// Sums and shared parameters are enqueued on the stream given by the caller, in the same order on
// all ranks. Used by one thread.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/comm/chain_links.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/pipeline_exchange.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/engine/update_graph.h"
#include "daemon/optim/update_control.h"
#include "daemon/replica/replica.h"
#include "daemon/replica/stage_messages.h"

namespace gaccd {

// CudaMessageRing: one direction of messages to or from one neighbour stage of a pipeline, in GPU
// memory. It has its own stream, so that messages travel while others are computed. A ring of
// places is used in turn (replica/stage_messages.h). Streams wait; the host does not:
//
//   receive   ring: free[place] | receive | arrived[place]
//             compute: arrived[place] | kernels | free[place]
//   send      compute: sent[place] | copy | copied       ring: copied | send | sent[place]
//
// Used by one thread.
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

class CudaPipeline {
 public:
  // Collective: makes the communicators. `comm`, `stage` and `layout` must outlive this.
  static Result<std::unique_ptr<CudaPipeline>> Make(Communicator& comm, const PipelineStage& stage,
                                                    const FlatLayout& layout,
                                                    std::int64_t state_buffers);

  // The layout of the stage's parameters in the buffers of this GPU; the functions below use its
  // element numbers.
  [[nodiscard]] const FlatLayout& places() const { return places_; }
  [[nodiscard]] PipelineExchange& exchange() { return *exchange_; }
  [[nodiscard]] const PipelineStage& stage() const { return stage_; }

  // Creates streams and events. compute: the stream of the replica.
  Status CreateStreams(cudaStream_t compute);
  // Collective: makes NCCL allocate its memory for every communicator of this. values:
  // places().size() f32 values in GPU memory, which are zero. shards: as for RecordReduce().
  Status ExchangeFirst(float* values, const ShardExchange* shards, cudaStream_t stream);
  // Allocates the memory of the messages and of Decide(), whose gather on `stream` it records.
  Status Allocate(const StageRings& rings, UpdateGraph& graph, cudaStream_t stream);

  // The message of a micro-batch, see CudaMessageRing. Does nothing if this stage has no such
  // neighbour or the message has no elements. A received message is released once no enqueued
  // kernel reads it any more.
  Status Post(Replica::Message which, const ConstBuffer& value, std::int64_t micro_batch);
  Status Await(Replica::Message which, std::int64_t micro_batch);
  [[nodiscard]] const void* Received(Replica::Message which, std::int64_t micro_batch) const;
  Status Release(Replica::Message which, std::int64_t micro_batch);
  Status Send(Replica::Message which, const ConstBuffer& value);

  // Records the sum of the gradients of this stage over all pipelines; with shards (may be null)
  // only the own part.
  Status RecordReduce(UpdateGraph& graph, float* gradients, const ShardExchange* shards,
                      cudaStream_t stream) const;
  // Records the copies of shared parameters from their owners.
  Status RecordSendShared(UpdateGraph& graph, float* parameters, cudaStream_t stream) const {
    return exchange_->RecordSendShared(graph, Whole(parameters), {stream});
  }
  // Calls DecideUpdate() with the norm over all stages, computed from SquaresIn(scratch) of each
  // stage.
  Status Decide(UpdateControl* control, void* scratch, cudaStream_t stream);

  // The first error of enqueued work. CancelPending() ends all of it (Communicator::CancelPending).
  Status Poll();
  void CancelPending(const Status& error);
  [[nodiscard]] std::vector<cudaStream_t> streams() const;

 private:
  CudaPipeline(const PipelineStage& stage, FlatLayout places)
      : stage_(stage), places_(std::move(places)) {}
  [[nodiscard]] std::optional<CudaMessageRing>& Ring(Replica::Message which) {
    return rings_[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] const std::optional<CudaMessageRing>& Ring(Replica::Message which) const {
    return rings_[static_cast<std::size_t>(which)];
  }
  [[nodiscard]] MutableBuffer Whole(float* values) const {
    return {values, static_cast<std::size_t>(places_.size()), DType::kF32, MemoryKind::kCuda};
  }

  const PipelineStage& stage_;
  const FlatLayout places_;
  std::unique_ptr<PipelineExchange> exchange_;
  ChainLinks links_;                                     // until CreateStreams()
  std::array<std::optional<CudaMessageRing>, 4> rings_;  // by Replica::Message
  DeviceBuffer squares_;                                 // f64, by stage
  UpdateGraph* graph_ = nullptr;
  UpdateGraph::Nodes gather_;  // of squares_
};

}  // namespace gaccd
