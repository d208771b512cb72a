// The cases in which the engine on a GPU must do what the engine on a CPU does, up to the rounding
// of f32 sums in another order.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/engine_runs.h"

namespace gaccd::tests {

// With one rank, and with two and three: several micro-steps, ragged ones, empty ones, smaller
// updates, clipping, every optimiser, with groups and frozen parameters, both losses.
[[nodiscard]] std::vector<EngineCase> MakeCudaCases(int ranks);

// Allowed: what f32 sums in another order make of so many updates.
inline constexpr double kSame = 2e-5;

void ExpectSame(const EngineRun& found, const EngineRun& expected, double tolerance);

}  // namespace gaccd::tests
