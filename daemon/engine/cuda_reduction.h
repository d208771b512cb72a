// CudaReduction: sums gradients, losses and counts over the ranks on the reduction stream, during
// the backward of the last micro-step.
//
//   compute stream | last micro-step: ... bucket 0 ... bucket 1 ... | computed
//   reduce stream            wait: bucket 0 | sum | wait: computed | sum: bucket 1, losses, counts
//
// The mark of a bucket is an event inside the recorded graph of the last micro-step. Buckets are
// summed in the same order on all ranks, whatever the order of their marks; the last one is summed
// together with losses and counts. With a sharded optimiser a bucket is reduced and scattered, and
// losses and counts are a separate message.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/cuda.h"
#include "collectives/bucket/bucket_reducer.h"
#include "collectives/comm/communicator.h"
#include "daemon/device/cuda/cuda_context.h"
#include "daemon/engine/shard_exchange.h"
#include "daemon/optim/update_control.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

struct CudaReductionOptions {
  std::size_t bucket_elements = 0;
  // doubles that follow the control and are summed with its sums
  std::size_t control_word_count = 0;
  bool overlap = true;              // with marks; false: one sum after everything is computed
  ShardExchange* shards = nullptr;  // null: not sharded; must outlive the reduction
};

class CudaReduction {
 public:
  // gradients: layout.size() f32 values in GPU memory, as is `control`. All arguments must outlive
  // this.
  static Result<std::unique_ptr<CudaReduction>> Create(Communicator& comm, CudaContext& context,
                                                       const FlatLayout& layout, float* gradients,
                                                       UpdateControl* control,
                                                       const CudaReductionOptions& options);

  // StartRecording(): before a last micro-step is recorded; also discards a recording that was not
  // completed. Ready(): while recording, when the gradient is complete. EndOfRecording(): when the
  // micro-step is recorded.
  void StartRecording();
  Status Ready(std::size_t parameter);
  Status EndOfRecording();
  // For a last micro-step without samples: sets all marks now.
  Status MarkAll();

  // Enqueues the sums. `computed` is recorded on compute() after the last micro-step.
  Status Enqueue(const CudaEvent& computed);
  // Call when all ranks have the sums of this update; starts the next cycle.
  Status NextCycle() { return shards_ != nullptr ? Status::Ok() : reducer_.NextCycle(); }

  [[nodiscard]] const BucketPlan& plan() const { return reducer_.plan(); }

 private:
  CudaReduction(Communicator& comm, CudaContext& context, std::span<float> gradients,
                BucketReducer reducer, UpdateControl* control, const CudaReductionOptions& options);
  Status Mark(std::size_t bucket);
  // Reduces the bucket, once it and all buckets before it are complete.
  Status ReduceBucket(std::size_t bucket);
  Status Scatter(std::size_t bucket);

  Communicator& comm_;
  CudaContext& context_;
  const std::span<float> gradients_;
  BucketReducer reducer_;
  ShardExchange* shards_;
  UpdateControl* control_;
  std::size_t control_word_count_;
  std::vector<CudaEvent> marks_;  // by bucket, except the last; empty without overlap
  std::vector<int> missing_;      // by bucket: gradients that the recording has not completed yet
};

}  // namespace gaccd
