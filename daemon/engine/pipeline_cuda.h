// CudaPipeline: communication of a pipeline stage on a GPU with the other stages
// (PipelineExchange). Everything is enqueued; the host does not wait inside an update. Messages
// have a communicator and a stream per direction and neighbour (collectives/comm/chain_links.h).
// Sums and shared parameters are enqueued on the stream given by the caller, in the same order on
// all ranks. Used by one thread.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/comm/chain_links.h"
#include "daemon/engine/cuda_message_ring.h"
#include "daemon/engine/pipeline_exchange.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/engine/update_graph.h"
#include "daemon/optim/update_control.h"
#include "daemon/replica/replica.h"

namespace gaccd {

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
  // Allocates the memory of the messages and of Judge(), whose gather on `stream` it records.
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
  // Calls JudgeUpdate() with the norm over all stages, computed from SquaresIn(scratch) of each
  // stage.
  Status Judge(UpdateControl* control, void* scratch, cudaStream_t stream);

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
