// UpdateGraph: what an update sends between ranks, recorded once as functions of
// ops/collective/collective.h over memory that does not move, and run in every update.
//
//   AllReduceSum    the accumulated gradients, bucket by bucket; losses and counts; sums of batch
//                   norms over the update
//   ReduceScatter   the gradients, if the optimiser is sharded; AllGather: its parameters and norm
//   Broadcast       parameters that several pipeline stages use
//
// All ranks of a communicator record the same functions in the same order. Everything is in place:
// an output is its input, a part of it (ReduceScatter), or memory that contains it (AllGather). On
// a GPU Run() enqueues on the stream that was recorded. Used by one thread.
//
// A sum in place must run once per update: a second one would count the first one again on every
// rank (R * S1 + S2 instead of S1 + S2). Run() refuses it with kInternal and changes nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/base/dtype.h"
#include "collectives/base/result.h"
#include "collectives/bucket/bucket_plan.h"
#include "collectives/comm/communicator.h"
#include "daemon/autograd/kernel.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

class UpdateGraph {
 public:
  // Consecutive nodes, in the order of recording.
  struct Nodes {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  // Each of the following functions records one node over `comm`, which must outlive this.
  // counts[r]: elements of rank r in `whole`, in rank order. Errors: kConfig for a type that is not
  // summed; kInternal for counts that do not match `whole` or the communicator.

  // Sums all values in one step.
  Status AllReduceSum(Communicator& comm, std::span<const MutableBuffer> values,
                      StreamHandle stream = {});
  // This rank's part of `whole` becomes its sum; the other parts are undefined.
  Status ReduceScatter(Communicator& comm, const MutableBuffer& whole,
                       std::vector<std::int64_t> counts, StreamHandle stream = {});
  // Every rank has its part at its offset in `whole`.
  Status AllGather(Communicator& comm, const MutableBuffer& whole, std::vector<std::int64_t> counts,
                   StreamHandle stream = {});
  // From rank 0.
  Status Broadcast(Communicator& comm, const MutableBuffer& values, StreamHandle stream = {});

  // The number of nodes; the nodes that were recorded after the first `begin` ones.
  [[nodiscard]] std::size_t size() const { return nodes_.size(); }
  [[nodiscard]] Nodes Since(std::size_t begin) const { return {begin, nodes_.size()}; }

  // Stops at the first error.
  Status Run(const Nodes& nodes);
  // Call at the start of an update.
  void NextUpdate();

 private:
  Status Record(Communicator& comm, const std::shared_ptr<const Function>& function,
                std::span<const MutableBuffer> inputs, std::span<const MutableBuffer> outputs,
                StreamHandle stream);

  struct Node {
    std::unique_ptr<Kernel> kernel;
    bool repeatable = false;
    bool done = false;  // in this update
  };

  Graph graph_;
  std::vector<Node> nodes_;
};

// The buckets of a model's flat gradients.

// Gradient i of the plan is parameter i of the layout. bucket_elements: see BucketPlan; kOneBucket
// on a host communicator, which cannot send while this thread computes.
Result<BucketPlan> GradientBuckets(const FlatLayout& layout, std::size_t bucket_elements);

}  // namespace gaccd
