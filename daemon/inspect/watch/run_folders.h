// Finds run folders.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/time.h"

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

// The attempts of a run, from their folders <run>/attempts/NNN-<job>.
struct Attempt {
  std::string name;    // "001-8123456"
  std::string folder;  // its path
  int number = 0;
  std::string job;  // "8123456", "local-4711"
  WallTime started;
  bool has_events = false;
  // Whether it is a start of the run. No start: a job that was refused, for example because another
  // one trains in this folder, or that has not begun to train.
  bool is_start = false;
};

struct AttemptList {
  std::vector<Attempt> attempts;   // oldest first
  std::vector<std::string> notes;  // missing attempts and events, for messages
};

// Attempts of one job are sorted by number, so that clock changes between restarts do not matter;
// jobs are sorted by their first event. only: a name, a number, "latest" for that of the state
// (run_state.h), or empty for all. kUsage if `run_dir` has no folder attempts, or `only` matches
// none; kIo if this user may not read it; kConfig if a newer gaccd wrote an attempt.
[[nodiscard]] Result<AttemptList> ListAttempts(const std::string& run_dir,
                                               std::string_view only = "");

// Number of those with is_start.
[[nodiscard]] std::size_t CountStarts(const std::vector<Attempt>& attempts);

// The host of each rank, from ranks.tsv of an attempt; empty if it is unreadable.
[[nodiscard]] std::vector<std::string> RankHosts(const Attempt& attempt);

}  // namespace gaccd
