// The verb `gaccd train`.
#pragma once

#include "daemon/config/flags.h"
#include "daemon/launch/verb_outcome.h"

namespace gaccd {

VerbOutcome RunTrain(const Flags& flags, const ErrorPrinter& print);

}  // namespace gaccd
