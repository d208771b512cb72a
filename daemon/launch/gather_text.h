// Gathers a text of every rank on every rank.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Collective: the texts of all ranks, by rank, of any length and content.
Result<std::vector<std::string>> GatherText(Communicator& comm, std::string_view mine);

}  // namespace gaccd
