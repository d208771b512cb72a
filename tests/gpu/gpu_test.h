// What the tests on a GPU share. The same sources are also linked with the stand-ins of
// tests/standin, where everything runs on the CPU.
#pragma once

#include <span>

#include "daemon/device/cuda/cublaslt_api.h"

namespace gaccd {

// null: the library on this machine.
[[nodiscard]] const CublasLtApi* CublasLtOfTest();

// |found - expected| / |expected|, over all elements; NaN when any element is.
[[nodiscard]] double RelativeDifference(std::span<const float> found,
                                        std::span<const float> expected);

}  // namespace gaccd
