// Checks that the engines of all devices share, with their errors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/base/result.h"
#include "daemon/model/model.h"

namespace gaccd {

// kInternal when a buffer of the caller has another number of elements than the engine's.
Status CheckCount(std::string_view what, std::size_t expected, std::size_t found);

// kInternal unless [first, first + count) lies within `elements`.
Status CheckRange(std::int64_t first, std::size_t count, std::size_t elements);

// When the update cannot be used. kData: nothing in it has a label; kNoRequeue: it is not finite.
Status CheckFinite(double loss, bool gradient_finite, double divisor);

// kNoRequeue: a micro-batch by itself cannot run the collectives of the model.
Status CheckProbe(const Model& model);

Status ResultNotTaken();

}  // namespace gaccd
