// CudaReduction: sums gradients, losses and counts over the ranks on the reduction stream, during
// the backward of the last micro-step.
//
//   compute stream | last micro-step: ... bucket 0 ... bucket 1 ... | computed
//   reduce stream            wait: bucket 0 | sum | wait: computed | sum: bucket 1, losses, counts
//
// The mark of a bucket is an event inside of the recorded graph of the last micro-step. Buckets are
// summed in one order on all ranks, whatever the order of their marks; the last one together with
// losses and counts. Where the optimiser is sharded a bucket is reduced and scattered, and losses
// and counts are a message of their own.
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
  std::size_t control_word_count = 0;  // doubles after the control that are summed with its sums
  bool overlap = true;                 // with marks; else one sum after all is computed
  ShardExchange* shards = nullptr;     // null: not sharded; outlives the reduction
};

class CudaReduction {
 public:
  // gradients: layout.size() f32 values on the GPU, like `control`; all outlive this.
  static Result<std::unique_ptr<CudaReduction>> Create(Communicator& comm, CudaContext& context,
                                                       const FlatLayout& layout, float* gradients,
                                                       UpdateControl* control,
                                                       const CudaReductionOptions& options);

  // Before a last micro-step is recorded, where the recording before was not completed. While it
  // is recorded: the gradient is complete; then: the micro-step is.
  void StartRecording();
  Status Ready(std::size_t parameter);
  Status EndOfRecording();
  // For a last micro-step without samples: sets all marks now.
  Status MarkAll();

  // Enqueues the sums. `computed` is recorded on compute() after the last micro-step.
  Status Enqueue(const CudaEvent& computed);
  // All ranks have got the sums of this update; the next cycle begins.
  Status NextCycle() { return shards_ != nullptr ? Status::Ok() : reducer_.NextCycle(); }

  [[nodiscard]] const BucketPlan& plan() const { return reducer_.plan(); }

 private:
  CudaReduction(Communicator& comm, CudaContext& context, std::span<float> gradients,
                BucketReducer reducer, UpdateControl* control, const CudaReductionOptions& options);
  Status Mark(std::size_t bucket);
  // Once the bucket is complete: it and those that waited for it.
  Status ReduceBucket(std::size_t bucket);
  Status Scatter(std::size_t bucket);

  Communicator& comm_;
  CudaContext& context_;
  const std::span<float> gradients_;
  BucketReducer reducer_;
  ShardExchange* shards_;
  UpdateControl* control_;
  std::size_t control_word_count_;
  std::vector<CudaEvent> marks_;  // by bucket, but for the last; without overlap: none
  std::vector<int> missing_;      // by bucket: gradients that the recording has not completed yet
};

}  // namespace gaccd
