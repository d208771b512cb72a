// Runs verbs of a trained model on all ranks, without a run folder.
#pragma once

#include <functional>

#include "daemon/config/flags.h"
#include "daemon/infer/trained_model.h"
#include "daemon/launch/rank_status.h"
#include "daemon/launch/session.h"
#include "daemon/launch/verb_outcome.h"

namespace gaccd {

// The common work of all ranks. `trained` is initially empty, and lives as long as the session.
using RanksWork = std::function<RankStatus(Session& session, TrainedModel& trained)>;

// Connects to the other ranks like a training, does the work and exits together with them.
VerbOutcome RunOnRanks(const Flags& flags, const ErrorPrinter& print, const RanksWork& work);

}  // namespace gaccd
