// Agreement: every rank reports its status before the ranks continue, so that a failure of one rank
// ends all of them instead of leaving the others waiting.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "collectives/base/result.h"
#include "collectives/base/ticks.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct Agreement {
  // OK, or the error of the lowest rank that has one, with its rank and host unless all have the
  // same
  Status status;
  int reporting_rank = 0;  // the rank that should print it
};

// Collective: every rank passes its own status; all get the same result.
Agreement AgreeOn(Communicator& comm, const Status& mine);

// Work whose duration differs between ranks or exceeds the time limit of a communicator.

// Collective: AgreeOn() the result of `work`. `work` must call `tick` regularly, well within the
// bound of `comm`, and make no other call of `comm`. A rank that works for a long time does not
// make the others time out; a rank that hangs does.
Agreement WorkTogether(Communicator& comm,
                       const std::function<Status(const TickFunction& tick)>& work);

// Checks that flags and binary are the same on all ranks by comparing digests at the start.

// Collective. kConfig on every rank if the digests differ, with ranks, hosts and both values:
// "flags must be the same on all ranks: 3 of 4 ranks (rank 0 on n0) have '12ab', rank 3 on n1 has
// '77cd'". The most frequent value (among equals, that of the lowest rank) is considered correct.
// what: "flags", "binary". digest: at most kDigestBytes bytes; longer ones are kInternal.
inline constexpr std::size_t kDigestBytes = 128;
Status CheckSameOnAllRanks(Communicator& comm, std::string_view what, std::string_view digest);

// Collective exchange of text, of any length and content.

// Every rank returns what rank `root` passes, including an error with its kind and message;
// arguments of other ranks are ignored.
Result<std::string> ShareFromRank(Communicator& comm, int root, const Result<std::string>& mine);

// The texts of all ranks, by rank.
Result<std::vector<std::string>> GatherText(Communicator& comm, std::string_view mine);

}  // namespace gaccd
