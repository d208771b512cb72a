// Data exchanged by the ranks when a run begins. All functions are collective.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Every rank returns what rank 0 passes, including an error with its kind and message; arguments of
// other ranks are ignored.
Result<std::string> ShareFromRankZero(Communicator& comm, const Result<std::string>& mine);

// The content of ranks.tsv: one line per rank, columns rank host node local cpus pid; the same on
// all ranks. cpus: the number of CPUs usable by the process.
Result<std::string> RankTable(Communicator& comm);

}  // namespace gaccd
