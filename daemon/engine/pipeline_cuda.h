// CudaPipeline: what a stage of a pipeline on a GPU exchanges with the others (PipelineExchange),
// enqueued, so that the host waits for nothing inside of an update. Messages have a communicator
// and a stream for each direction and neighbour (collectives/comm/chain_links.h); what sums and
// shares is enqueued on the stream that the caller says, on all ranks in the same order. Used by
// one thread.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/comm/chain_links.h"
#include "daemon/engine/cuda_message_ring.h"
#include "daemon/engine/pipeline_exchange.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/optim/update_control.h"
#include "daemon/replica/replica.h"

namespace gaccd {

class CudaPipeline {
 public:
  // Collective: the communicators. `comm`, `stage` and `layout` outlive this.
  static Result<std::unique_ptr<CudaPipeline>> Make(Communicator& comm, const PipelineStage& stage,
                                                    const FlatLayout& layout,
                                                    std::int64_t state_buffers);

  // The stage's entries in the buffers of this GPU, with whose elements the calls below count.
  [[nodiscard]] const FlatLayout& places() const { return places_; }
  [[nodiscard]] PipelineExchange& exchange() { return *exchange_; }
  [[nodiscard]] const PipelineStage& stage() const { return stage_; }

  // Streams and events; compute: the stream of the replica.
  Status CreateStreams(cudaStream_t compute);
  // Collective: NCCL takes its memory for every communicator of this. values: places().size() f32
  // values on the GPU, which are zero. shards: as for ReduceGradients().
  Status ExchangeFirst(float* values, ShardExchange* shards, cudaStream_t stream);
  // The memory of the messages and of Judge().
  Status Allocate(const StageRings& rings);

  // A message of a micro-batch, as CudaMessageRing. Nothing where this stage has no such
  // neighbour, or the message no elements. Received ones are released together, once no kernel
  // reads them any more.
  Result<const void*> Receive(Replica::Message which, const ConstBuffer& value,
                              std::int64_t micro_batch);
  [[nodiscard]] const void* Received(Replica::Message which, std::int64_t micro_batch) const;
  Status Release(Replica::Message which, std::int64_t micro_batch);
  Status Send(Replica::Message which, const ConstBuffer& value);

  // Gradients of the own stage become those of all pipelines; with shards, which may be null, those
  // of the own part.
  Status ReduceGradients(float* gradients, ShardExchange* shards, cudaStream_t stream);
  // JudgeUpdate() with the norm of all stages, from SquaresIn(scratch) of the own one.
  Status Judge(UpdateControl* control, void* scratch, cudaStream_t stream);

  // The first error of what was enqueued; and an end of all of it (Communicator::GiveUp).
  Status Poll();
  void GiveUp(const Status& error);
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
};

}  // namespace gaccd
