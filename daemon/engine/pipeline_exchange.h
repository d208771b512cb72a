// PipelineExchange: what the ranks of a pipeline exchange. The world is `pipelines` x `stages`:
// rank r is stage r % stages of pipeline r / stages. Every pipeline computes samples of its own;
// the ranks of one stage have the same parameters and reduce their gradients.
//
//   with whom                        what
//   neighbours in the own pipeline   values of micro-batches and their gradients, one by one
//   the own pipeline                 sums of squares, in the order of the stages; parameters, state
//                                    and digests where they are asked for whole
//   the own stage                    gradients of the own part
//   stages that share a parameter,   its gradients before that, its values after a step
//   in the own pipeline
//
// Host memory, or what MutableBuffer says; used by one thread. What returns a Status is collective
// among those ranks, apart from the messages. A "whole" buffer has a place for every element of the
// layout, or for those that this stage uses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/replica/pipeline_stage.h"

namespace gaccd {

class PipelineExchange {
 public:
  // Collective. places: the entries of `layout` in the whole buffers of this rank: those of the
  // layout on a CPU, PlacesOfStage() on a GPU. kConfig: the ranks of `comm` are no multiple of the
  // stages. All outlive this.
  static Result<std::unique_ptr<PipelineExchange>> Make(Communicator& comm,
                                                        const PipelineStage& stage,
                                                        const FlatLayout& layout,
                                                        const FlatLayout& places,
                                                        std::int64_t state_buffers);

  [[nodiscard]] const PipelineStage& stage() const { return stage_; }
  [[nodiscard]] std::span<float> Own(std::span<float> whole) const;
  // By stage: the ranks of the own pipeline.
  [[nodiscard]] Communicator& pipeline() { return *pipeline_; }

  // To and from the stage that is `step` further: 1 or -1. Empty messages are not sent. In host
  // memory: on GPUs CudaPipeline has them.
  Status Send(ConstBuffer message, int step);
  Status Receive(MutableBuffer message, int step);
  // Before a collective: waits until the own messages have left.
  Status FlushSends() { return pipeline_->FlushSends(); }

  // Of shared parameters the gradients become those of the own pipeline, before the owner's part is
  // summed over the ranks of its stage. Enqueued where the buffer is in device memory.
  Status ReduceShared(const MutableBuffer& gradients, StreamHandle stream = {});
  // By pipeline: ranks with the same parameters, one of each pipeline.
  [[nodiscard]] Communicator& same_stage() { return *same_stage_; }
  // Of all stages, the same bits on all ranks.
  Result<double> SumOverStages(double own);
  // The sum modulo 2^64.
  Result<std::uint64_t> SumDigests(std::uint64_t own);
  // After a step of the own part: shared parameters become what their owners have. Enqueued, as
  // above.
  Status SendShared(const MutableBuffer& parameters, StreamHandle stream = {});
  // The first error of what was enqueued; and an end of all of it (Communicator::GiveUp).
  Status Poll();
  void GiveUp(const Status& error);

  // Elements [first, first + out.size()) of a whole buffer or state, which every rank chooses for
  // itself. own: gives elements of the own part, or of the state of the own stage, from one on.
  using OwnValues = std::function<Status(std::int64_t first, std::span<float> out)>;
  Status GatherFlat(const OwnValues& own, std::int64_t first, std::span<float> out);
  Status GatherState(const OwnValues& own, std::int64_t first, std::span<float> out);

 private:
  PipelineExchange(const PipelineStage& stage, const FlatLayout& layout, const FlatLayout& places,
                   std::int64_t state_buffers)
      : stage_(stage), layout_(layout), places_(places), state_buffers_(state_buffers) {}
  [[nodiscard]] MutableBuffer Shared(const MutableBuffer& whole,
                                     const SharedParameter& shared) const;
  struct Range {
    std::int64_t first = 0;
    std::int64_t elements = 0;
  };
  // parts: by stage; own: the values of this rank's part of them. They follow each other from
  // `begin` on.
  Status GatherParts(std::span<const Range> parts, const OwnValues& own, std::int64_t begin,
                     std::int64_t first, std::span<float> out);

  const PipelineStage& stage_;
  const FlatLayout& layout_;
  const FlatLayout& places_;
  const std::int64_t state_buffers_;
  std::unique_ptr<Communicator> pipeline_;    // by stage
  std::unique_ptr<Communicator> same_stage_;  // by pipeline
  // Of stage_.shared: those of the own pipeline that use it, the owner first; null: not this one.
  std::vector<std::unique_ptr<Communicator>> sharing_;
};

}  // namespace gaccd
