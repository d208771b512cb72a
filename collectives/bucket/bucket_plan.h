// BucketPlan: divides a flat gradient buffer into messages (buckets) and orders them.
//
// The backward pass completes gradients one by one. A bucket is a contiguous range of the flat
// buffer: gradients that are completed in sequence and are adjacent are joined up to a size; then
// small buckets are joined with adjacent ones. A gradient is never cut. Buckets are ordered by the
// gradient that completes them, so that they can be reduced while backward still runs.
//
// The plan depends only on the arguments: it is the same on every rank with the same model. Padding
// between two gradients of a bucket is reduced with them; keep it zero. Pure functions,
// thread-safe.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// One gradient. All sizes are elements.
struct GradientSlot {
  std::size_t offset = 0;
  std::size_t elements = 0;
  int ready = 0;  // backward completes gradients in ascending order of this number
};

struct Bucket {
  std::size_t offset = 0;
  std::size_t elements = 0;
  int gradients = 0;  // number of gradients that must be ready before the reduction
};

// A single message. The default if sending cannot overlap with computing.
inline constexpr std::size_t kOneBucket = std::numeric_limits<std::size_t>::max();

class BucketPlan {
 public:
  // A gradient longer than bucket_elements gets its own bucket. kInternal: no gradients, an empty
  // gradient, overlapping gradients, one beyond buffer_elements, or bucket_elements == 0.
  [[nodiscard]] static Result<BucketPlan> Make(std::span<const GradientSlot> gradients,
                                               std::size_t buffer_elements,
                                               std::size_t bucket_elements = kOneBucket);

  // In the order of reduction.
  [[nodiscard]] std::span<const Bucket> buckets() const { return buckets_; }
  // The bucket of each gradient, in the order of the gradients given to Make().
  [[nodiscard]] std::span<const std::size_t> bucket_of() const { return bucket_of_; }
  [[nodiscard]] std::size_t buffer_elements() const { return buffer_elements_; }

 private:
  BucketPlan() = default;

  std::vector<Bucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::size_t buffer_elements_ = 0;
};

}  // namespace gaccd
