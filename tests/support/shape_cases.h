// The functions that exported networks are made of, besides layers, in small graphs: values of
// different shapes, their parts, and functions with numbers.
#pragma once

#include <span>

#include "tests/support/graph_cases.h"

namespace gaccd {

[[nodiscard]] std::span<const GraphCase> ShapeCases();

}  // namespace gaccd
