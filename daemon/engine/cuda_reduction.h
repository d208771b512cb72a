// CudaReduction: sums gradients, losses and counts over the ranks on the reduction stream, during
// the backward of the last micro-step.
//
//   compute stream | last micro-step: ... bucket 0 ... bucket 1 ... | computed
//   reduce stream            wait: bucket 0 | sum | wait: computed | sum: bucket 1, losses, counts
//
// The sums are nodes of the UpdateGraph. The mark of a bucket is an event inside the recorded graph
// of the last micro-step. Buckets are summed in the same order on all ranks, whatever the order of
// their marks; the last one is summed together with losses and counts. With a sharded optimiser a
// bucket is reduced and scattered, and losses and counts are a separate message.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/bucket/bucket_plan.h"
#include "collectives/comm/communicator.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/engine/update_graph.h"
#include "daemon/optim/update_control.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

struct CudaReductionOptions {
  std::size_t bucket_elements = 0;
  // doubles that follow the control and are summed with its sums
  std::size_t control_word_count = 0;
  bool overlap = true;                    // with marks; false: one sum after everything is computed
  const ShardExchange* shards = nullptr;  // null: not sharded
};

class CudaReduction {
 public:
  // Records the sums in `graph`. gradients: layout.size() f32 values in GPU memory, as is
  // `control`. All arguments must outlive this.
  static Result<std::unique_ptr<CudaReduction>> Create(Communicator& comm, CudaContext& context,
                                                       UpdateGraph& graph, const FlatLayout& layout,
                                                       float* gradients, UpdateControl* control,
                                                       const CudaReductionOptions& options);

  // StartRecording(): before a last micro-step is recorded; also discards a recording that was not
  // completed. Ready(): while recording, when the gradient is complete. EndRecording(): when the
  // micro-step is recorded.
  void StartRecording();
  Status Ready(std::size_t parameter);
  Status EndRecording();
  // For a last micro-step without samples: sets all marks now.
  Status MarkAll();

  // Enqueues the sums. `computed` is recorded on compute() after the last micro-step.
  Status Enqueue(const CudaEvent& computed);

 private:
  CudaReduction(CudaContext& context, UpdateGraph& graph, BucketPlan plan)
      : context_(context), graph_(graph), plan_(std::move(plan)) {}
  Status Record(Communicator& comm, std::span<float> gradients, UpdateControl* control,
                const CudaReductionOptions& options);
  // The elements of a bucket, with the padding up to the next one or the end, where parts end.
  [[nodiscard]] std::size_t PaddedElements(const Bucket& bucket) const;
  Status Mark(std::size_t bucket);

  CudaContext& context_;
  UpdateGraph& graph_;
  const BucketPlan plan_;
  std::vector<UpdateGraph::Nodes> sums_;  // by bucket; those of the last one include the counts
  std::vector<CudaEvent> marks_;          // by bucket, except the last; empty without overlap
  std::vector<int> missing_;  // by bucket: gradients that the recording has not completed yet
};

}  // namespace gaccd
