// `gaccd status [RUN]`, `gaccd runs [FOLDER]`, `gaccd stop RUN` and `gaccd save RUN`.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct WatchRequest {
  std::string folder = ".";
  bool json = false;
  bool watch = false;  // status: repeat every 2 s until IsPermanentlyEnded()
};

// Prints the state. Returns the exit code of the process, ExitCode(). Errors: ReadRunState().
Result<int> RunStatusCommand(const WatchRequest& request);

// Prints the runs of FindRunFolders(). kUsage if there is none; warns of runs that cannot be read.
Status RunRunsCommand(const WatchRequest& request);

enum class RunRequest : std::uint8_t { kStop, kSave };
// Writes STOP or SAVE into the run folder, which the run reads at its next update, and prints the
// effect. kUsage if it is not a run folder, or the run has ended or is complete. STOP is also
// written for stopped runs, so that they are not started again.
Status RunRequestCommand(const WatchRequest& request, RunRequest what);

}  // namespace gaccd
