// Checks that flags and binary are the same on all ranks by comparing digests at the start.
#pragma once

#include <string_view>

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

// Collective. kConfig on every rank if the digests differ, with ranks, hosts and both values:
// "flags differ: rank 0 on n0 and 2 more have 12ab, rank 3 on n1 has 77cd". The most frequent value
// (among equals, that of the lowest rank) is considered correct. what: "flags", "binary". digest:
// at most kDigestBytes bytes; longer ones are kInternal.
inline constexpr std::size_t kDigestBytes = 128;
Status CheckSameOnAllRanks(Communicator& comm, std::string_view what, std::string_view digest);

}  // namespace gaccd
