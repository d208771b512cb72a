// What a run prints, and writes as events, when it begins and ends.
#pragma once

#include "daemon/config/flags.h"
#include "daemon/rundir/run_reporter.h"
#include "daemon/train/session.h"

namespace gaccd {

// REQUIRES: the trainer is prepared.
void Announce(const Flags& flags, const Session& session, RunReporter& reporter);
void Conclude(const Flags& flags, const Session& session, const TrainingSummary& summary,
              RunReporter& reporter);

}  // namespace gaccd
