// The verb `gaccd train`.
#pragma once

#include <functional>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Prints an error for users on stderr. The message already contains rank and host.
using ErrorPrinter = std::function<void(const Status&)>;

// The result of a verb that runs on all ranks.
struct RanksOutcome {
  Status status;         // determines the exit code
  bool printed = false;  // true also if another rank has printed it
};

// An error shared by all ranks is printed by one of them, any other error by every rank that has
// it. In the second case the other ranks are aborted (Communicator::Abort) and this does not
// return. An error before the ranks are connected is returned unprinted, and no rank is aborted.
RanksOutcome RunTrain(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
