// Sums a flat gradient buffer over the ranks, bucket by bucket, exactly once per cycle.
//
//   cycle = k micro-steps that accumulate; during or after the last one every gradient is announced
//           once (MarkReady or ReduceAll); then NextCycle().
//
// A bucket is reduced once all its gradients are ready and all buckets before it have started, so
// always in the order of the plan, whatever the order of announcements on each rank. Therefore
// every rank issues the same calls in the same order. On a host communicator MarkReady blocks
// during the reduction; on a device it enqueues on `stream`.
//
// The sum is in place, so a second one in the same cycle would count the first one again on every
// rank (R * S1 + S2 instead of S1 + S2). It returns kInternal, as does ending a cycle that is only
// partly reduced; these errors do not change the state. After an error of the communicator the
// reducer must not be used. One thread at a time.
#pragma once

#include <cstddef>
#include <vector>

#include "collectives/bucket/bucket_plan.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

class BucketReducer {
 public:
  // `gradients` has plan.buffer_elements() elements; it and the communicator must outlive this.
  [[nodiscard]] static Result<BucketReducer> Make(Communicator& comm, BucketPlan plan,
                                                  MutableBuffer gradients);

  // Gradient `gradient` (index in BucketPlan::Make) is complete on this rank.
  [[nodiscard]] Status MarkReady(std::size_t gradient, StreamHandle stream = {});

  // Marks all gradients that were not announced yet as complete. kInternal if all of them have
  // already been reduced in this cycle.
  [[nodiscard]] Status ReduceAll(StreamHandle stream = {});

  // The same, and sums `with` in place together with the last bucket.
  [[nodiscard]] Status ReduceAll(MutableBuffer with, StreamHandle stream);

  // Begins a new cycle. kInternal if some gradients were announced but not all.
  [[nodiscard]] Status NextCycle();

  // Number of buckets reduced (or enqueued) in this cycle.
  [[nodiscard]] std::size_t started() const { return started_; }
  [[nodiscard]] bool done() const { return started_ == plan_.buckets().size(); }
  [[nodiscard]] const BucketPlan& plan() const { return plan_; }

 private:
  BucketReducer(Communicator& comm, BucketPlan plan, MutableBuffer gradients);
  [[nodiscard]] Status AnnounceAll();
  [[nodiscard]] MutableBuffer Part(std::size_t bucket) const;
  // Reduces the ready buckets before `end`.
  [[nodiscard]] Status Start(StreamHandle stream, std::size_t end);
  void Note(std::size_t gradient);

  Communicator* comm_;
  BucketPlan plan_;
  MutableBuffer gradients_;
  std::vector<bool> ready_;   // by gradient
  std::vector<int> missing_;  // by bucket: number of gradients that are not ready
  std::size_t announced_ = 0;
  std::size_t started_ = 0;
};

}  // namespace gaccd
