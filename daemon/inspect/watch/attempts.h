// The attempts of a run, from their folders <run>/attempts/NNN-<job>.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "daemon/inspect/watch/wall_time.h"

namespace gaccd {

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
