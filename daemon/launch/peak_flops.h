// What a GPU can do at most, by which the speed of a training is judged.
#pragma once

#include <string_view>

#include "daemon/config/job.h"

namespace gaccd {

// Floating-point operations per second of matrix products without sparsity, as NVIDIA states them,
// of a GPU of that name; 0 where they are not known, and for a part of a GPU (MIG).
[[nodiscard]] double PeakFlops(std::string_view gpu_name, const Numerics& numerics);

}  // namespace gaccd
