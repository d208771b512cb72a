// Functions of exported models (daemon/models/graph_*_ops.cc) in small graphs: as graph_cases.h.
#pragma once

#include <span>

#include "tests/support/graph_cases.h"

namespace gaccd {

// x is [rows, 3, 2 in].
[[nodiscard]] std::span<const GraphCase> ExportedCases();

}  // namespace gaccd
