// What the ranks exchange when a run begins. All functions are collective.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Every rank returns what rank 0 passes, the error with its kind and message included; what other
// ranks pass is not looked at.
Result<std::string> ShareFromRankZero(Communicator& comm, const Result<std::string>& mine);

// ranks.tsv: one line a rank, columns rank host node local cpus pid; the same text on all ranks.
// cpus is how many CPUs the process may use.
Result<std::string> RankTable(Communicator& comm);

}  // namespace gaccd
