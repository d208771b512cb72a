// The best evaluation of a run, over all its attempts: what runs are compared by.
#pragma once

#include <optional>
#include <string>

#include "daemon/telemetry/events.h"

namespace gaccd {

// By the job's first metric, else by the loss; its name is Printable(). Nothing where there was no
// evaluation with a finite value. Reads all events of the run, and parses only evaluations.
[[nodiscard]] std::optional<BestValue> FindBestEval(const std::string& run_dir);

}  // namespace gaccd
