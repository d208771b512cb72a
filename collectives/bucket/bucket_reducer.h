// Sums a flat gradient buffer over the ranks, bucket by bucket, exactly once a cycle.
//
//   cycle = k micro-steps that accumulate; during or after the last one every gradient is announced
//           once (MarkReady or ReduceAll); then NextCycle().
//
// A bucket is reduced as soon as all its gradients are ready and all buckets before it have
// started: always in the order of the plan, however different the order of announcements is on the
// ranks. So every rank issues the same calls in the same order. On a host communicator MarkReady
// blocks while it reduces; on a device it enqueues on `stream`.
//
// The sum is made in place, so a second one in the same cycle would count the first one again on
// every rank (R * S1 + S2 instead of S1 + S2). It is refused as kInternal, and so is a cycle that
// ends half reduced; these errors leave the state as it was. After an error of the communicator
// neither is needed afterwards. One thread at a time.
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

  // Gradient `gradient` (index of BucketPlan::Make) is complete on this rank.
  [[nodiscard]] Status MarkReady(std::size_t gradient, StreamHandle stream = {});

  // All gradients that were not announced are complete. Also when some or none were announced.
  // kInternal when all of them have been reduced in this cycle.
  [[nodiscard]] Status ReduceAll(StreamHandle stream = {});

  // The same, and sums `with` in place, in one step with the last bucket.
  [[nodiscard]] Status ReduceAll(MutableBuffer with, StreamHandle stream);

  // The accumulators start anew. kInternal when some gradients were announced but not all.
  [[nodiscard]] Status NextCycle();

  // Buckets that have been reduced (or enqueued) in this cycle.
  [[nodiscard]] std::size_t started() const { return started_; }
  [[nodiscard]] bool done() const { return started_ == plan_.buckets().size(); }
  [[nodiscard]] const BucketPlan& plan() const { return plan_; }

 private:
  BucketReducer(Communicator& comm, BucketPlan plan, MutableBuffer gradients);
  [[nodiscard]] Status AnnounceAll();
  [[nodiscard]] MutableBuffer Part(std::size_t bucket) const;
  // Those before `end` that are ready.
  [[nodiscard]] Status Start(StreamHandle stream, std::size_t end);
  void Note(std::size_t gradient);

  Communicator* comm_;
  BucketPlan plan_;
  MutableBuffer gradients_;
  std::vector<bool> ready_;   // by gradient
  std::vector<int> missing_;  // by bucket: gradients that are not ready
  std::size_t announced_ = 0;
  std::size_t started_ = 0;
};

}  // namespace gaccd
