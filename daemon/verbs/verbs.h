// Runs the verb of a command line: most in this process only, some on all ranks.
#pragma once

#include "collectives/base/result.h"
#include "daemon/config/flags.h"
#include "daemon/train/run.h"

namespace gaccd {

struct VerbOutcome {
  Result<int> exit;      // the exit code, 0 for most verbs; or the error
  bool printed = false;  // the error was printed, by this rank or another
};

// Runs the verb, which prints its output. print: for an error shared by all ranks, see
// RanksOutcome. Other errors are returned unprinted.
VerbOutcome RunVerb(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
