// The peak performance of a GPU, for comparison with the speed of a training.
#pragma once

#include <string_view>

#include "daemon/config/job.h"

namespace gaccd {

// Floating-point operations per second of dense matrix products according to NVIDIA, for a GPU with
// this name; 0 if not known, and for a part of a GPU (MIG).
[[nodiscard]] double PeakFlops(std::string_view gpu_name, const Numerics& numerics);

}  // namespace gaccd
