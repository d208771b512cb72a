// The buckets of a model's flat gradients.
#pragma once

#include <cstddef>

#include "collectives/base/result.h"
#include "collectives/bucket/bucket_plan.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// Gradient i of the plan is parameter i of the layout. bucket_elements: see BucketPlan; kOneBucket
// on a host communicator, which cannot send while this thread computes.
Result<BucketPlan> GradientBuckets(const FlatLayout& layout, std::size_t bucket_elements);

}  // namespace gaccd
