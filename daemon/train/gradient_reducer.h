// The bridge from the model's flat gradients to the buckets in which they are reduced.
#pragma once

#include <span>

#include "collectives/base/result.h"
#include "collectives/bucket/bucket_reducer.h"
#include "collectives/comm/communicator.h"
#include "daemon/tensor/flat_layout.h"

namespace gaccd {

// One message for all gradients: a host communicator cannot send while this thread computes.
// `gradients` (layout.size() elements) and `comm` must outlive the reducer.
Result<BucketReducer> MakeGradientReducer(Communicator& comm, const FlatLayout& layout,
                                          std::span<float> gradients);

}  // namespace gaccd
