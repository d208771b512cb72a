// The content of ranks.tsv.
#pragma once

#include <string>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Collective. One line per rank, columns rank host node local cpus pid; the same on all ranks.
// cpus: the number of CPUs usable by the process.
Result<std::string> RankTable(Communicator& comm);

}  // namespace gaccd
