// `gaccd status [RUN]`, `gaccd runs [FOLDER]`, `gaccd stop RUN` and `gaccd save RUN`.
#pragma once

#include <cstdint>
#include <string>

#include "collectives/base/result.h"

namespace gaccd {

struct WatchRequest {
  std::string folder = ".";
  bool json = false;
  bool watch = false;  // of status: again every 2 s, until the run ends and is not requeued
};

// Prints the state. What the process exits with: ExitOf(). Errors: ReadRunState().
Result<int> RunStatusCommand(const WatchRequest& request);

// Prints the runs of FindRunFolders(). kUsage when there is none; those that cannot be read are a
// line on stderr, and the others are printed.
Status RunRunsCommand(const WatchRequest& request);

enum class RunRequest : std::uint8_t { kStop, kSave };
// Writes STOP or SAVE into the run folder, which the run sees at its next update, and prints what
// follows. kUsage where it is no run folder, or a run that has ended or is complete; a stale or
// stopped one may be stopped, so that it is not started again.
Status RunRequestCommand(const WatchRequest& request, RunRequest what);

}  // namespace gaccd
