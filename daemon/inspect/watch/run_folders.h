// Which folders are those of runs.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// It has one of STATUS.json, submit.jsonl, ledger.jsonl and attempts.
[[nodiscard]] bool IsRunFolder(const std::string& folder);

// kIo where this user may not look into the folder: then nothing is known of what it holds.
[[nodiscard]] Status CheckMayRead(const std::string& folder);

// kUsage: what is said of a folder that holds no run.
[[nodiscard]] Status NoRunFolder(const std::string& folder);

struct FoundRuns {
  std::vector<std::string> folders;     // paths, sorted; of "." without "./"
  std::vector<std::string> unreadable;  // folders into which this user may not look
};

// The run folders in `folder`, and in those of its folders that are none themselves: the runs of a
// sweep. Errors: ListFolder().
[[nodiscard]] Result<FoundRuns> FindRunFolders(const std::string& folder);

// Warns of FoundRuns::unreadable, in one line.
void WarnOfUnreadable(const FoundRuns& runs);

}  // namespace gaccd
