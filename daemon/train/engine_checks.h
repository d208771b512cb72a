// What the engines of all devices check alike, and how they say it.
#pragma once

#include <cstddef>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// kInternal when a buffer of the caller has another number of elements than the engine's.
Status CheckCount(std::string_view what, std::size_t expected, std::size_t found);

// kNoRequeue when the update cannot be used.
Status CheckFinite(double loss, bool gradient_finite);

Status FiguresNotTaken();

}  // namespace gaccd
