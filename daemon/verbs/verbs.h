// Runs the verb of a command line: most in this process only, some on all ranks.
#pragma once

#include "daemon/config/flags.h"
#include "daemon/launch/verb_outcome.h"

namespace gaccd {

// Runs the verb, which prints its output. print: for the errors of verbs that run on all ranks.
// Other errors are returned unprinted.
VerbOutcome RunVerb(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
