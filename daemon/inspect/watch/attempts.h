// The attempts of a run, as their folders tell: <run>/attempts/NNN-<job>.
#pragma once

#include <optional>
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
};

struct AttemptList {
  std::vector<Attempt> attempts;   // the oldest first
  std::vector<std::string> notes;  // what is missing, for people
};

// The attempts of one job are in the order of their numbers, jobs in that of their first events:
// a clock that jumped between two restarts changes nothing. `only`: a name, a number, "latest", or
// empty for all. kUsage where `run_dir` has no folder attempts, or `only` is none of them; kIo
// where this user may not read it.
[[nodiscard]] Result<AttemptList> ListAttempts(const std::string& run_dir,
                                               std::string_view only = "");

// The host of each rank, by ranks.tsv of an attempt; empty where that cannot be read.
[[nodiscard]] std::vector<std::string> RankHosts(const Attempt& attempt);

}  // namespace gaccd
