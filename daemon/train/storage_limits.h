// How long the end of a run waits for file systems that do not answer.
//
//   the last save          bound / 2, and time for its bytes over a slow disk
//   --save-weights, DONE   bound / 2: the other ranks wait for rank 0
//   verdict, crash record  bound / 4, but 2 to 10 s
#pragma once

#include <chrono>
#include <functional>
#include <string>

#include "collectives/base/result.h"
#include "daemon/train/rank_status.h"

namespace gaccd {

// `bytes`: of a checkpoint, over all ranks.
[[nodiscard]] std::chrono::milliseconds LimitOfLastSave(std::chrono::milliseconds bound,
                                                        double bytes);
[[nodiscard]] std::chrono::milliseconds LimitOfResults(std::chrono::milliseconds bound);
[[nodiscard]] std::chrono::milliseconds LimitOfVerdict(std::chrono::milliseconds bound);

// What `write` gives, which makes `path`; kTempFail when it has not returned within `limit`. It is
// then left behind: it shares the ownership of all that it uses.
Status WriteWithin(std::chrono::milliseconds limit, const std::string& path,
                   std::function<Status()> write);

// Adds the error of RunReporter::close_status() to the status of the run. A run that ended well
// has, even if nothing says so.
void AddStorageProblem(const Status& problem, RankStatus& rank_status);

}  // namespace gaccd
