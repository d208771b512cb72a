// PipelineExchange: communication between the ranks of a pipeline. The world is `pipelines` x
// `stages`: rank r is stage r % stages of pipeline r / stages. Every pipeline computes different
// samples; ranks of the same stage have the same parameters and reduce their gradients.
//
//   with whom                        what
//   neighbours in the own pipeline   activations of micro-batches and their gradients, one by one
//   the own pipeline                 sums of squares, in the order of the stages; parameters, state
//                                    and digests that are read as a whole
//   the own stage                    gradients of the own part
//   stages that share a parameter,   its gradients before that, its values after a step
//   in the own pipeline
//
// Uses host memory, or the memory kind of the MutableBuffer; used by one thread. What every update
// sends, except messages, is recorded in an UpdateGraph, which must not outlive this. Functions
// that return a Status are collective among those ranks, except messages. A "whole" buffer has a
// place for every element of the layout, or for those that this stage uses.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"
#include "daemon/engine/update_graph.h"
#include "daemon/replica/pipeline_stage.h"

namespace gaccd {

class PipelineExchange {
 public:
  // Collective. places: the entries of `layout` in the whole buffers of this rank: those of the
  // layout on a CPU, StagePlaces() on a GPU. kConfig: the size of `comm` is not a multiple of the
  // number of stages. All arguments must outlive this.
  static Result<std::unique_ptr<PipelineExchange>> Make(Communicator& comm,
                                                        const PipelineStage& stage,
                                                        const FlatLayout& layout,
                                                        const FlatLayout& places,
                                                        std::int64_t state_buffers);

  [[nodiscard]] const PipelineStage& stage() const { return stage_; }
  [[nodiscard]] std::span<float> Own(std::span<float> whole) const;
  // The ranks of the own pipeline, by stage.
  [[nodiscard]] Communicator& pipeline() { return *pipeline_; }

  // To or from the stage at distance `step`: 1 or -1. Empty messages are not sent. Host memory
  // only: on GPUs use CudaPipeline.
  Status Send(ConstBuffer message, int step);
  Status Receive(MutableBuffer message, int step);
  // Call before a collective: waits until the messages of this rank have been sent.
  Status FlushSends() { return pipeline_->FlushSends(); }

  // Records the sum of the gradients of shared parameters over the own pipeline, to run before the
  // owner sums its part over the ranks of its stage.
  Status RecordReduceShared(UpdateGraph& graph, const MutableBuffer& gradients,
                            StreamHandle stream = {}) const;
  // Ranks with the same parameters, one per pipeline, by pipeline.
  [[nodiscard]] Communicator& same_stage() { return *same_stage_; }
  // Records a gather of one f64 of each stage, in the order of the stages.
  Status RecordGatherByStage(UpdateGraph& graph, const MutableBuffer& by_stage,
                             StreamHandle stream = {}) const;
  // The sum modulo 2^64 over all stages.
  Result<std::uint64_t> SumDigests(std::uint64_t own);
  // Records the copies of shared parameters from their owners, to run after a step.
  Status RecordSendShared(UpdateGraph& graph, const MutableBuffer& parameters,
                          StreamHandle stream = {}) const;
  // The first error of enqueued work. CancelPending() ends all of it (Communicator::CancelPending).
  Status Poll();
  void CancelPending(const Status& error);

  // Copies elements [first, first + out.size()) of a whole buffer or state; every rank chooses its
  // range. own: returns elements of the own part, or of the state of the own stage, from `first`
  // on.
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
  // Gathers the range from consecutive parts; the first starts at `begin`. parts: by stage; own:
  // the values of this rank's part.
  Status GatherParts(std::span<const Range> parts, const OwnValues& own, std::int64_t begin,
                     std::int64_t first, std::span<float> out);

  const PipelineStage& stage_;
  const FlatLayout& layout_;
  const FlatLayout& places_;
  const std::int64_t state_buffers_;
  std::unique_ptr<Communicator> pipeline_;    // ranks ordered by stage
  std::unique_ptr<Communicator> same_stage_;  // ranks ordered by pipeline
  // By element of stage_.shared: the ranks of the own pipeline that use it, the owner first; null:
  // this rank does not.
  std::vector<std::unique_ptr<Communicator>> sharing_;
};

}  // namespace gaccd
