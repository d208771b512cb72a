// `gaccd status [RUN]` and `gaccd runs [FOLDER]`.
#pragma once

#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct WatchRequest {
  std::string folder = ".";
  bool json = false;
  bool watch = false;  // of status: again every 2 s, until the run ends
};

// Prints the state. What the process exits with: 0 starting, running or done; 1 stale or stopped;
// 2 failed. kUsage, kData: ReadRunState().
Result<int> RunStatusCommand(const WatchRequest& request);

// Prints every run whose folder lies in `folder`, in the order of their names. kUsage when there is
// none; one that cannot be read is a line on stderr, and the others are printed.
Status RunRunsCommand(const WatchRequest& request);

}  // namespace gaccd
