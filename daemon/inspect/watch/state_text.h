// A RunState as text. Pure; thread-safe.
#pragma once

#include <span>
#include <string>

#include "daemon/inspect/watch/run_state.h"

namespace gaccd {

// For users: a line each for run, state, progress, speed, loss, checkpoint, reason.
[[nodiscard]] std::string StateText(const RunState& state);
// One line of JSON with the known keys of STATUS.json, and folder, phase, age_s, step_age_s,
// save_age_s.
[[nodiscard]] std::string StateJson(const RunState& state);
// A table with one row per run.
[[nodiscard]] std::string RunsTable(std::span<const RunState> runs);

}  // namespace gaccd
