// The verb `gaccd train`.
#pragma once

#include <functional>

#include "collectives/base/result.h"
#include "daemon/config/flags.h"

namespace gaccd {

// Prints an error for people, on stderr. The message already names rank and host.
using ErrorPrinter = std::function<void(const Status&)>;

// How a verb ended that runs on all ranks.
struct RanksOutcome {
  Status status;         // for the exit code
  bool printed = false;  // or another rank has printed it
};

// An error on which all ranks agree is printed by one of them, any other by every rank that has it.
// In the second case the other ranks are ended (Communicator::Abort) and this does not return. One
// from before the ranks have met comes back unprinted, and nobody is ended.
RanksOutcome RunTrain(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
