// Agreement: before the ranks continue together, each reports its status, so that a failure of
// one ends all at once instead of leaving the others to wait for it.
#pragma once

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct Agreement {
  Status status;  // OK, or the error of the lowest rank that has one, with its rank and host
  int reporting_rank = 0;  // the rank that should print it
};

// Collective: every rank hands in its own status, all get the same answer.
Agreement AgreeOn(Communicator& comm, const Status& mine);

}  // namespace gaccd
