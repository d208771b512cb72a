// How a verb ends.
#pragma once

#include <functional>

#include "collectives/base/result.h"

namespace gaccd {

// Prints an error for users on stderr. The message already contains rank and host.
using ErrorPrinter = std::function<void(const Status&)>;

// For a verb that runs on all ranks: an error shared by all ranks is printed by one of them, any
// other error by every rank that has it. In the second case the other ranks are aborted
// (Communicator::Abort) and the verb does not return. An error before the ranks are connected is
// returned unprinted, and no rank is aborted.
struct VerbOutcome {
  Result<int> exit = 0;  // the exit code, 0 for most verbs; or the error
  bool printed = false;  // the error was printed, by this rank or another
};

}  // namespace gaccd
