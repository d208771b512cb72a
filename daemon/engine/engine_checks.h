// Checks of the arguments of an Engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/base/result.h"

namespace gaccd {

// kInternal if the caller's buffer does not have the engine's number of elements.
Status CheckElementCount(std::string_view what, std::size_t expected, std::size_t found);

// kInternal unless [first, first + count) lies within `elements`.
Status CheckRange(std::int64_t first, std::size_t count, std::size_t elements);

}  // namespace gaccd
