// `gaccd logs RUN --compact=N`: the events of a run that has ended, with fewer lines of updates.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct ThinnedEvents {
  std::int64_t updates = 0;
  std::int64_t kept_updates = 0;  // of them, those that still have their own lines
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes = 0;
};

// Of the lines "step" of each attempt stay: every `every`-th, the first and the last, those after
// which a later attempt continued, and any with a loss or a gradient that is not finite, without a
// step of the optimizer or with another number of samples than planned. Each stretch of the others
// becomes one line "thinned" with their sums (StepSum); all other lines stay as they are. A file is
// replaced at once: an interruption leaves it as it was, or thinned. Calling it again is safe.
// REQUIRES: `every` > 1. kUsage where `run_dir` is no run folder; kConfig where a run lives in it,
// which is named; kIo.
[[nodiscard]] Result<ThinnedEvents> ThinEvents(const std::string& run_dir, std::int64_t every);

// Does it, and prints what was done and lost.
[[nodiscard]] Status RunThinCommand(const std::string& run_dir, std::int64_t every);

}  // namespace gaccd
