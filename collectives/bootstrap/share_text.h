// Collective exchange of text, of any length and content.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Every rank returns what rank `root` passes, including an error with its kind and message;
// arguments of other ranks are ignored.
Result<std::string> ShareFromRank(Communicator& comm, int root, const Result<std::string>& mine);

// The texts of all ranks, by rank.
Result<std::vector<std::string>> GatherText(Communicator& comm, std::string_view mine);

}  // namespace gaccd
