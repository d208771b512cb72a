// `gaccd logs RUN --compact=N`: reduces the lines of updates in the events of a run that has ended.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct ThinnedEvents {
  std::int64_t updates = 0;
  std::int64_t kept_updates = 0;  // updates that still have their own lines
  std::uint64_t bytes_before = 0;
  std::uint64_t bytes = 0;
};

// Keeps these lines "step" of each attempt: every `every`-th, the first and the last, those after
// which a later attempt continued, and those with a non-finite loss or gradient, without a step of
// the optimizer or with another number of samples than planned. Each sequence of others is replaced
// by one line "thinned" with their sums (StepSum); all other lines are unchanged. Files are
// replaced atomically, and may be thinned again. REQUIRES: every > 1. kUsage if `run_dir` is not a
// run folder; kConfig, with its name, if a run is live in it; kIo.
[[nodiscard]] Result<ThinnedEvents> ThinEvents(const std::string& run_dir, std::int64_t every);

// Calls ThinEvents() and prints the result.
[[nodiscard]] Status RunThinCommand(const std::string& run_dir, std::int64_t every);

}  // namespace gaccd
