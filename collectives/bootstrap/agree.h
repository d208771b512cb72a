// Agreement: every rank reports its status before the ranks continue, so that a failure of one rank
// ends all of them instead of leaving the others waiting.
#pragma once

#include "collectives/base/result.h"
#include "collectives/comm/communicator.h"

namespace gaccd {

struct Agreement {
  Status status;  // OK, or the error of the lowest rank that has one, with its rank and host
  int reporting_rank = 0;  // the rank that should print it
};

// Collective: every rank passes its own status; all get the same result.
Agreement AgreeOn(Communicator& comm, const Status& mine);

}  // namespace gaccd
