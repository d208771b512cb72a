// How long the end of a run waits for file systems that do not respond.
//
//   the last save, --save-weights, DONE   the largest of bound / 2, 2 s and the time for
//                                         the bytes at 50 MB/s
//   verdict, crash record                 bound / 4, but 2 to 10 s
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"

namespace gaccd {

struct RankStatus;

// bytes: everything that is written; for a checkpoint over all ranks.
[[nodiscard]] std::chrono::milliseconds SaveLimit(std::chrono::milliseconds bound, double bytes);
[[nodiscard]] std::chrono::milliseconds VerdictLimit(std::chrono::milliseconds bound);

// Returns the status of `write`, which creates `path`; kTempFail if it has not returned within
// `limit`. It is then abandoned, so it must share ownership of everything it uses. `tick`, from
// WorkTogether() or null, is called meanwhile on the calling thread; its error does not end the
// write, which may save days of work.
Status WriteWithin(std::chrono::milliseconds limit, const std::string& path,
                   const TickFunction& tick, std::function<Status()> write);

// Adds the error of RunReporter::close_status() to the status of the run. A run that ended well
// stays successful even if it could not record that.
void AddStorageProblem(const Status& problem, RankStatus& rank_status);

}  // namespace gaccd
