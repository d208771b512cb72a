// Finds run folders.
#pragma once

#include <string>
#include <vector>

#include "collectives/base/result.h"

namespace gaccd {

// Whether it has STATUS.json, submit.jsonl, ledger.jsonl or attempts.
[[nodiscard]] bool IsRunFolder(const std::string& folder);

// kIo if this user may not list the folder.
[[nodiscard]] Status CheckMayRead(const std::string& folder);

// kUsage: the error for a folder without a run, or with one that has not begun.
[[nodiscard]] Status NoRunFolder(const std::string& folder);

struct FoundRuns {
  std::vector<std::string> folders;     // sorted paths; below "." without "./"
  std::vector<std::string> unreadable;  // folders that this user may not list
};

// The run folders in `folder` and, for the runs of a sweep, in its folders that are not run
// folders. Errors: ListFolder().
[[nodiscard]] Result<FoundRuns> FindRunFolders(const std::string& folder);

// Logs one warning for runs.unreadable.
void WarnAboutUnreadable(const FoundRuns& runs);

}  // namespace gaccd
