// Runs the verb of a command line: most on this process alone, some together with all ranks.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/train/run.h"

namespace gaccd {

struct VerbOutcome {
  Result<int> exit;      // the exit code, 0 for most verbs; or the error
  bool printed = false;  // the error, by this rank or another
};

// Runs the verb, which prints what it has to say. `print`: for an error on which all ranks agree,
// see RanksOutcome. Any other error comes back unprinted.
VerbOutcome RunVerb(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
