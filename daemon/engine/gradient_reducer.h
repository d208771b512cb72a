// Makes the BucketReducer of a model's flat gradients.
#pragma once

#include <cstddef>

#include "collectives/base/result.h"
#include "collectives/bucket/bucket_reducer.h"
#include "collectives/comm/communicator.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// `gradients` (layout.size() f32 elements) and `comm` must outlive the reducer. bucket_elements:
// see BucketPlan; kOneBucket on a host communicator, which cannot send while this thread computes.
// Gradient i of the reducer is parameter i of the layout.
Result<BucketReducer> MakeGradientReducer(Communicator& comm, const FlatLayout& layout,
                                          MutableBuffer gradients, std::size_t bucket_elements);

}  // namespace gaccd
