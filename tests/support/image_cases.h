// The functions of images in small graphs, for tests of their gradients on every device.
#pragma once

#include <span>

#include "tests/support/graph_cases.h"

namespace gaccd {

// `rows` is the number of images, 2 `in` the channels, 2 `out` those of a result.
[[nodiscard]] std::span<const GraphCase> ImageCases();
// Batch norms and what follows them. Near the corner of a relu there are no finite differences, and
// rounding moves values across it.
[[nodiscard]] std::span<const GraphCase> NormReluCases();

}  // namespace gaccd
