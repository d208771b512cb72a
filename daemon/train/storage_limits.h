// How long the end of a run waits for file systems that do not answer.
//
//   the last save, --save-weights, DONE   bound / 2, and time for the bytes over a slow disk
//   verdict, crash record                 bound / 4, but 2 to 10 s
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "daemon/train/rank_status.h"

namespace gaccd {

// `bytes`: of all that is written; of a checkpoint over all ranks.
[[nodiscard]] std::chrono::milliseconds LimitOfSave(std::chrono::milliseconds bound, double bytes);
[[nodiscard]] std::chrono::milliseconds LimitOfVerdict(std::chrono::milliseconds bound);

// What `write` gives, which makes `path`; kTempFail when it has not returned within `limit`. It is
// then left behind: it shares the ownership of all that it uses. `tick`, of WorkTogether() or null,
// is called here meanwhile; its error does not end the writing, which may save days of work.
Status WriteWithin(std::chrono::milliseconds limit, const std::string& path,
                   const TickFunction& tick, std::function<Status()> write);

// Adds the error of RunReporter::close_status() to the status of the run. A run that ended well
// has, even if nothing says so.
void AddStorageProblem(const Status& problem, RankStatus& rank_status);

}  // namespace gaccd
